"""Rows of `jaxiou.detection.crowd_human`; what it shares with `voc` is there."""

from catalogue.row import HOST, Row
from catalogue.voc import KEPT, RATIOS, batches, curves, sides

ROWS = [
    Row(
        "partial(detection.crowd_human.evaluate, thresholds=(0.25, 0.5))",
        sides,
        exempt=KEPT | {"eager": "a loop, operation by operation: as `matching.greedy`"},
    ),
    Row(
        "partial(detection.crowd_human.summarize, num_images=4)",
        curves,
        leading=False,
        exempt=RATIOS | {"eager": "operation by operation in `voc.summarize`, of the same parts"},
    ),
    Row("partial(detection.crowd_human.average_precision, num_classes=2)", batches, exempt=HOST),
]
