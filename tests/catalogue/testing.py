"""Rows of `jaxiou.testing`."""

from catalogue.row import HOST, Row

ROWS = [
    Row("partial(testing.check_overlap, boxes.iou, minimum=0)", lambda rng: (), exempt=HOST),
]
