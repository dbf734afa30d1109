"""The shape of the library: what is public, how it is called, documented, layered; its errors."""

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import catalogue
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from catalogue.row import Row

import jaxiou

PACKAGE = Path(jaxiou.__file__).parent

SIGNATURES = {
    "assigners.max_iou": (
        "(anchors, truths, *, positive=0.7, negative=0.3, low_quality=True, overlap=iou,"
        " where=None, anchor_where=None)"
    ),
    "assigners.atss": (
        "(anchors, truths, *, level_sizes, candidates=9, overlap=iou, where=None,"
        " anchor_where=None)"
    ),
    "assigners.simota": (
        "(predictions, truths, scores, labels, *, centres, strides, radius=2.5,"
        " candidates=10, overlap_weight=3.0, overlap=iou, where=None, anchor_where=None)"
    ),
    "assigners.task_aligned": (
        "(predictions, truths, scores, labels, *, centres, alpha=1.0, beta=6.0,"
        " candidates=13, overlap=iou, where=None, anchor_where=None)"
    ),
    "assigners.set_matching": (
        "(predictions, truths, scores, labels, *, class_weight=1.0, l1_weight=5.0,"
        " overlap_weight=2.0, overlap=giou, solver='optax', where=None, anchor_where=None)"
    ),
    "assigners.Assignment.take": "(self, x, fill=0)",
    "assignment.maximum_matching": "(scores, *, where=None, minimum=None, solver='optax')",
    "assignment.greedy_matching": "(scores, *, where=None, minimum=None)",
    "assignment.Matching.take": "(self, x, fill=0)",
    "boxes.area": "(regions)",
    "boxes.intersection": "(a, b)",
    "boxes.union": "(a, b)",
    "boxes.enclosing": "(a, b)",
    "boxes.iou": "(a, b)",
    "boxes.giou": "(a, b)",
    "boxes.diou": "(a, b)",
    "boxes.ciou": "(a, b)",
    "boxes.ioa": "(a, b)",
    "boxes.dice": "(a, b)",
    "boxes.from_xywh": "(regions)",
    "boxes.to_xywh": "(regions)",
    "boxes.from_cxcywh": "(regions)",
    "boxes.to_cxcywh": "(regions)",
    "boxes.from_yxyx": "(regions)",
    "boxes.to_yxyx": "(regions)",
    "boxes.from_inclusive": "(regions)",
    "boxes.to_inclusive": "(regions)",
    "boxes.clip": "(regions, height, width)",
    "boxes.is_valid": "(regions, *, min_size=0.0)",
    "boxes.check_values": "(regions, *, where=None)",
    "cuboids.volume": "(regions)",
    "cuboids.corners": "(regions)",
    "cuboids.intersection": "(a, b)",
    "cuboids.iou": "(a, b)",
    "cuboids.bev_iou": "(a, b)",
    "cuboids.ioa": "(a, b)",
    "cuboids.giou": "(a, b)",
    "cuboids.diou": "(a, b)",
    "cuboids.oriented_corners": "(regions)",
    "cuboids.oriented_intersection": "(a, b)",
    "cuboids.oriented_iou": "(a, b)",
    "cuboids.from_kitti": "(regions)",
    "cuboids.from_waymo": "(regions)",
    "cuboids.from_bottom_center": "(regions)",
    "cuboids.from_nuscenes": "(regions)",
    "cuboids.to_oriented": "(regions)",
    "cuboids.from_oriented": "(regions)",
    "cuboids.from_matrix": "(regions)",
    "cuboids.from_corners": "(corners)",
    "detection.COCOeval.evaluate": "(self)",
    "detection.COCOeval.accumulate": "(self, p=None)",
    "detection.COCOeval.summarize": "(self)",
    "gaussians.prob_iou": "(a, b)",
    "gaussians.kf_iou": "(a, b)",
    "gaussians.mgiou": "(a, b)",
    "gaussians.bhattacharyya": "(a, b)",
    "gaussians.gwd": "(a, b)",
    "gaussians.normalized_gwd": "(a, b)",
    "gaussians.kld": "(predictions, targets)",
    "gaussians.jd": "(a, b)",
    "gaussians.kld_max": "(a, b)",
    "gaussians.kld_min": "(a, b)",
    "gaussians.likeness": "(*, distance=gwd, form='log1p', tau=1.0)",
    "losses.iou_loss": "(predictions, targets, *, form='linear', where=None)",
    "losses.giou_loss": "(predictions, targets, *, where=None)",
    "losses.diou_loss": "(predictions, targets, *, where=None)",
    "losses.ciou_loss": "(predictions, targets, *, where=None)",
    "losses.eiou_loss": "(predictions, targets, *, gamma=0.0, where=None)",
    "losses.extended_iou_loss": "(predictions, targets, *, smooth=0.1, where=None)",
    "losses.bounded_iou_loss": "(predictions, targets, *, beta=0.2, where=None)",
    "losses.wiou_v2_loss": "(predictions, targets, *, running_mean, gamma=0.5, where=None)",
    "losses.wiou_v3_loss": (
        "(predictions, targets, *, running_mean, alpha=1.9, delta=3.0, where=None)"
    ),
    "losses.update_running_mean": "(running_mean, values, *, momentum=0.01, where=None)",
    "losses.overlap_loss": "(overlap, *, region_rank=None)",
    "losses.mean": "(values, *, where=None)",
    "masks.area": "(regions)",
    "masks.intersection": "(a, b)",
    "masks.union": "(a, b)",
    "masks.iou": "(a, b)",
    "masks.ioa": "(a, b)",
    "masks.dice": "(a, b)",
    "masks.to_boxes": "(regions)",
    "masks.boundary": "(regions, *, ratio=0.02)",
    "masks.boundary_iou": "(*, ratio=0.02)",
    "masks.label_boundary": "(labels, *, ratio=0.02)",
    "metrics.mean_iou": "(num_classes, *, ignore=(), absent='exclude', classes=None)",
    "metrics.dice": "(num_classes, *, ignore=(), absent='exclude', classes=None)",
    "metrics.semantic_segmentation": "(protocol)",
    "metrics.panoptic_quality": "(num_classes, *, things=(), threshold=0.5, boundary_ratio=None)",
    "metrics.tracking": "(num_predictions, num_targets, *, threshold=0.5)",
    "metrics.coco_average_precision": (
        "(num_classes, num_images, *, num_detections=100, num_truths=100, overlap=box_iou,"
        " crowd_overlap=box_ioa, thresholds=(...))"
    ),
    "metrics.to_numpy": "(state)",
    "pairing.pairwise": "(overlap, *, region_rank=None)",
    "pairing.best_match": "(overlap, *, region_rank=None)",
    "pairing.Match.take": "(self, x, fill=0)",
    "panoptic.panoptic_counts": (
        "(predictions, targets, prediction_labels, target_labels, *, num_classes, crowd=None,"
        " target_areas=None, threshold=0.5, boundary_ratio=None, stuff=())"
    ),
    "panoptic.panoptic_quality": "(counts, *, classes=None)",
    "panoptic.relabel": "(ids, *, max_segments)",
    "panoptic.from_rgb": "(colors)",
    "panoptic.pack": "(ids, segments_info, *, category_ids, max_segments=None)",
    "polygons.area": "(regions)",
    "polygons.intersection": "(a, b)",
    "polygons.union": "(a, b)",
    "polygons.iou": "(a, b)",
    "polygons.ioa": "(a, b)",
    "polygons.pad": "(regions, counts)",
    "polygons.pack": "(regions, *, max_vertices=None)",
    "polygons.check_values": "(regions, *, where=None)",
    "protocols.mmseg": "(num_classes, *, ignore=255, reduce_zero_label=False)",
    "protocols.by_place": "(protocol, *, ignore=255)",
    "protocols.scores": "(matrix, protocol)",
    "protocols.instance_counts": (
        "(predictions, targets, instances, *, protocol=<protocol cityscapes: 19 of 34"
        " labels>, where=None)"
    ),
    "protocols.instance_iou": "(counts, *, protocol=<protocol cityscapes: 19 of 34 labels>)",
    "rotated.area": "(regions)",
    "rotated.intersection": "(a, b)",
    "rotated.union": "(a, b)",
    "rotated.iou": "(a, b)",
    "rotated.giou": "(a, b)",
    "rotated.diou": "(a, b)",
    "rotated.ciou": "(a, b)",
    "rotated.ioa": "(a, b)",
    "rotated.generalized_iou": "(*, enclosing='hull')",
    "rotated.distance_iou": "(*, enclosing='hull')",
    "rotated.complete_iou": "(*, enclosing='hull')",
    "rotated.corners": "(regions)",
    "rotated.from_corners": "(regions)",
    "rotated.from_degrees_ccw": "(regions)",
    "rotated.to_degrees_ccw": "(regions)",
    "rotated.to_long_edge": "(regions)",
    "rotated.from_boxes": "(regions)",
    "rotated.to_boxes": "(regions)",
    "rotated.is_valid": "(regions)",
    "rotated.check_values": "(regions, *, where=None)",
    "segmentation.confusion_matrix": (
        "(predictions, targets, num_classes, *, ignore=(), where=None, method='auto')"
    ),
    "segmentation.boundary_confusion_matrix": (
        "(predictions, targets, num_classes, *, ratio=0.02, ignore=(), where=None)"
    ),
    "segmentation.target_counts": "(targets, num_classes, *, ignore=(), where=None)",
    "segmentation.check_values": "(labels, num_classes, *, ignore=())",
    "segmentation.class_iou": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.mean_iou": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.class_dice": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.mean_dice": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.pixel_accuracy": "(matrix, *, classes=None)",
    "segmentation.mean_accuracy": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.frequency_weighted_iou": "(matrix, *, classes=None)",
    "segmentation.precision": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.recall": "(matrix, *, absent='exclude', classes=None)",
    "segmentation.category_iou": "(matrix, *, categories, absent='exclude')",
    "segmentation.class_counts": "(matrix)",
    "segmentation_losses.soft_jaccard_loss": (
        "(predictions, targets, *, activation='softmax', axis=(-3, -2), ignore=(),"
        " classes='present', smooth=0.0, where=None)"
    ),
    "segmentation_losses.dice_loss": (
        "(predictions, targets, *, activation='softmax', axis=(-3, -2), ignore=(),"
        " classes='present', smooth=0.0, where=None)"
    ),
    "segmentation_losses.generalized_dice_loss": (
        "(predictions, targets, *, activation='softmax', axis=(-3, -2), ignore=(),"
        " classes='all', where=None)"
    ),
    "segmentation_losses.tversky_loss": (
        "(predictions, targets, *, alpha=0.3, beta=0.7, activation='softmax', axis=(-3, -2),"
        " ignore=(), classes='present', smooth=0.0, where=None)"
    ),
    "segmentation_losses.focal_tversky_loss": (
        "(predictions, targets, *, gamma=0.75, alpha=0.3, beta=0.7, activation='softmax',"
        " axis=(-3, -2), ignore=(), classes='present', smooth=0.0, where=None)"
    ),
    "segmentation_losses.lovasz_softmax_loss": (
        "(predictions, targets, *, activation='softmax', axis=(-3, -2), ignore=(),"
        " classes='present', where=None)"
    ),
    "segmentation_losses.lovasz_hinge_loss": (
        "(predictions, targets, *, axis=(-2, -1), ignore=(), where=None)"
    ),
    "suppression.nms": (
        "(regions, scores, *, threshold, max_outputs, overlap=iou, labels=None, where=None,"
        " min_score=None)"
    ),
    "suppression.nms_from_overlaps": (
        "(overlaps, scores, *, threshold, max_outputs, labels=None, where=None, min_score=None)"
    ),
    "suppression.soft_nms": (
        "(regions, scores, *, max_outputs, method='gaussian', sigma=0.5, threshold=0.3,"
        " min_score=0.001, overlap=iou, labels=None, where=None)"
    ),
    "suppression.matrix_nms": (
        "(regions, scores, *, max_outputs, method='gaussian', sigma=2.0, min_score=0.05,"
        " candidates=500, overlap=iou, labels=None, where=None)"
    ),
    "suppression.weighted_boxes_fusion": (
        "(regions, scores, *, threshold=0.55, max_outputs, num_models=1, overlap=iou,"
        " labels=None, where=None, min_score=None)"
    ),
    "suppression.non_maximum_merging": (
        "(regions, scores, *, threshold, max_outputs, overlap=iou, merge=enclosing,"
        " labels=None, where=None, min_score=None)"
    ),
    "suppression.Selection.take": "(self, x, fill=0)",
    "testing.check_overlap": (
        "(overlap, *, regions=None, region_rank=None, symmetric=True, identity=1.0,"
        " minimum=-inf, maximum=1.0)"
    ),
    "variants.eiou": "(a, b)",
    "variants.siou": "(*, theta=4.0)",
    "variants.alpha_iou": "(*, alpha=3.0, penalty='ciou')",
    "variants.wiou": "(a, b)",
    "variants.mpdiou": "(*, image_size)",
    "variants.inner_iou": "(*, ratio, base=iou)",
    "variants.nwd": "(*, constant)",
    "variants.powerful_iou": "(predictions, targets)",
    "variants.powerful_iou_v2": "(*, attention=1.3)",
    "variants.extended_iou": "(a, b)",
    "detection.coco.average_precision": (
        "(batches, *, num_classes, overlap=box_iou, crowd_overlap=box_ioa, thresholds=(...),"
        " area_ranges=((0.0, 10000000000.0), (0.0, 1024.0), (1024.0, 9216.0), (9216.0,"
        " 10000000000.0)), max_detections=(1, 10, 100), recalls=(...), class_agnostic=False)"
    ),
    "detection.coco.keypoint_average_precision": "(batches, *, num_classes, thresholds=(...))",
    "detection.coco.evaluate": (
        "(detections, truths, *, overlap=box_iou, crowd_overlap=box_ioa, overlaps=None,"
        " thresholds=(...), area_ranges=((0.0, 10000000000.0), (0.0, 1024.0), (1024.0,"
        " 9216.0), (9216.0, 10000000000.0)), max_detections=100, class_agnostic=False)"
    ),
    "detection.coco.accumulate": (
        "(matches, *, num_classes, num_thresholds=10, max_detections=(1, 10, 100), recalls=(...))"
    ),
    "detection.coco.summarize": "(curves, *, thresholds=(...))",
    "detection.coco.box_iou": "(a, b)",
    "detection.coco.box_ioa": "(a, b)",
    "detection.lvis.average_precision": (
        "(batches, *, num_classes, frequencies, overlap=box_iou, thresholds=(...))"
    ),
    "detection.lvis.pack": (
        "(table, *, negative, not_exhaustive, max_detections=300, overlaps=None, batch_size=64)"
    ),
    "detection.lvis.federate": (
        "(detections, truths, *, negative, not_exhaustive, max_detections=300)"
    ),
    "detection.lvis.evaluate": (
        "(detections, truths, *, overlap=box_iou, overlaps=None, thresholds=(...),"
        " area_ranges=((0.0, 10000000000.0), (0.0, 1024.0), (1024.0, 9216.0), (9216.0,"
        " 10000000000.0)))"
    ),
    "detection.lvis.accumulate": "(matches, *, num_classes, num_thresholds=10, recalls=(...))",
    "detection.lvis.summarize": "(curves, *, frequencies, thresholds=(...))",
    "detection.voc.inclusive_iou": "(a, b)",
    "detection.voc.evaluate": (
        "(detections, truths, *, thresholds=(0.5,), strict=True, overlap=inclusive_iou,"
        " overlaps=None)"
    ),
    "detection.voc.accumulate": "(matches, *, num_classes, num_thresholds=1)",
    "detection.voc.summarize": "(curves, *, points='all')",
    "detection.voc.average_precision": (
        "(batches, *, num_classes, thresholds=(0.5,), strict=True, points='all',"
        " overlap=inclusive_iou, num_images=None)"
    ),
    "detection.open_images.expand_hierarchy": "(table, *, ancestors, also_detections=False)",
    "detection.open_images.verified_classes": "(positive, negative, *, ancestors=None)",
    "detection.open_images.keep_verified": "(detections, truths, *, verified)",
    "detection.open_images.evaluate": (
        "(detections, truths, *, thresholds=(0.5,), group_weight=0, overlap=iou,"
        " group_overlap=ioa, overlaps=None)"
    ),
    "detection.open_images.average_precision": (
        "(batches, *, num_classes, thresholds=(0.5,), group_weight=0, overlap=iou,"
        " group_overlap=ioa, verified=None, num_images=None)"
    ),
    "detection.kitti.evaluate": (
        "(detections, truths, *, label, measure='image', minimum=None, overlap=None, overlaps=None)"
    ),
    "detection.kitti.choose_thresholds": "(scores, num_truths)",
    "detection.kitti.accumulate": (
        "(detections, truths, *, thresholds, label, measure='image', minimum=None,"
        " overlap=None, overlaps=None, shares=None)"
    ),
    "detection.kitti.summarize": "(counts)",
    "detection.kitti.average_precision": (
        "(table, *, minimum='strict', measures=('image', 'bev', '3d'), overlap=None, overlaps=None)"
    ),
    "detection.crowd_human.evaluate": (
        "(detections, truths, *, thresholds=(0.5,), overlap=iou, ignored_overlap=ioa,"
        " overlaps=None)"
    ),
    "detection.crowd_human.summarize": "(curves, *, num_images)",
    "detection.crowd_human.average_precision": (
        "(batches, *, num_classes=1, thresholds=(0.5,), overlap=iou, ignored_overlap=ioa,"
        " num_images=None)"
    ),
    "detection.packing.pack": "(table, *, overlaps=None, batch_size=64)",
    "detection.matching.greedy": (
        "(overlaps, detections, truths, *, thresholds, truth_ignored, unmatched_ignored,"
        " max_detections=None)"
    ),
    "detection.matching.overlap_table": (
        "(detections, truths, *, overlap, crowd_overlap=None, overlaps=None)"
    ),
    "detection.matching.ranks_by_score": "(scores, valid, labels=None)",
    "detection.precision.accumulate": (
        "(matches, *, num_classes, num_thresholds, max_detections=(2147483647,), recalls=(...))"
    ),
    "detection.precision.accumulate_exactly": (
        "(matches, *, num_classes, num_thresholds, max_detections=(2147483647,), recalls=(...))"
    ),
    "detection.diagnosis.confusion_matrix": (
        "(detections, truths, *, num_classes, threshold=0.5, score=0.25, overlap=iou,"
        " crowd_overlap=ioa, overlaps=None)"
    ),
    "detection.diagnosis.at_score": (
        "(matches, *, num_classes, score, threshold_index=0, area_index=0)"
    ),
    "detection.diagnosis.best_f1": "(matches, *, num_classes, threshold_index=0, area_index=0)",
    "detection.tide.breakdown": (
        "(batches, *, num_classes, threshold=0.5, background=0.1, max_detections=100,"
        " overlap=iou, crowd_overlap=ioa)"
    ),
    "detection.tide.evaluate": (
        "(detections, truths, *, threshold=0.5, background=0.1, max_detections=100,"
        " overlap=iou, crowd_overlap=ioa, overlaps=None)"
    ),
    "detection.tide.summarize": "(errors, *, num_classes)",
    "readers.coco.load": (
        "(targets, predictions, *, kind='bbox', areas=None, across_classes=False, sigmas=None)"
    ),
    "readers.coco.from_dicts": (
        "(targets, predictions, *, kind='bbox', areas=None, across_classes=False, sigmas=None)"
    ),
    "readers.kitti.read": "(path, *, scored=False)",
    "readers.kitti.find": "(targets, predictions, *, images=None)",
    "readers.kitti.pack": "(targets, predictions)",
    "readers.kitti.load": "(targets, predictions, *, images=None)",
    "readers.kitti_tracking.read": "(path)",
    "readers.kitti_tracking.load": "(targets, predictions, *, kind='car', num_frames=None)",
    "readers.label_maps.read": "(file)",
    "readers.label_maps.read_pair": "(pair)",
    "readers.label_maps.find_pairs": (
        "(targets, predictions, *, target_suffix='.png', prediction_suffix='.png')"
    ),
    "readers.label_maps.remap": "(labels, table)",
    "readers.label_maps.reduce_zero_label": "(labels)",
    "readers.lvis.load": "(targets, predictions, *, kind='bbox', areas=None, across_classes=False)",
    "readers.mot.read": "(path)",
    "readers.mot.load": "(targets, predictions, *, benchmark='MOT15', num_frames=None)",
    "readers.mot.find_sequences": "(targets, predictions)",
    "readers.mots.read": "(path, *, first_frame=1)",
    "readers.mots.load": (
        "(targets, predictions, *, kind='pedestrian', first_frame=1, num_frames=None)"
    ),
    "readers.open_images.load": (
        "(targets, predictions, *, labels=None, classes=None, hierarchy=None, images=None)"
    ),
    "readers.voc.load": "(targets, predictions, *, classes=None, images=None)",
    "tracking.association.sort_association": (
        "(detections, tracks, *, threshold=0.3, shortcut=True, overlap=iou, region_rank=None,"
        " where=None, track_where=None)"
    ),
    "tracking.association.byte_association": (
        "(detections, scores, tracks, *, lost=None, unconfirmed=None, track_threshold=0.6,"
        " low_threshold=0.1, new_threshold=0.7, match_limit=0.8, second_limit=0.5,"
        " unconfirmed_limit=0.7, fuse_score=True, overlap=iou, region_rank=None, where=None,"
        " track_where=None)"
    ),
    "tracking.association.sort_tracker": (
        "(detections, *, capacity, threshold=0.3, max_age=1, min_hits=3, shortcut=True, where=None)"
    ),
    "tracking.clear.count": (
        "(sequence, *, num_targets, threshold=0.5, num_frames=None, convention='trackeval',"
        " empty='trackeval')"
    ),
    "tracking.clear.summarize": "(counts, *, convention='trackeval', empty='trackeval')",
    "tracking.combine.class_averaged": "(scores, *, where=None)",
    "tracking.hota.count": "(sequence, *, num_predictions, num_targets)",
    "tracking.hota.summarize": "(counts)",
    "tracking.identity.count": (
        "(sequence, *, num_predictions, num_targets, threshold=0.5, convention='trackeval')"
    ),
    "tracking.identity.summarize": "(counts, *, convention='trackeval')",
    "tracking.packing.pack": "(frames, ids, regions, *, num_frames, capacity=None)",
    "tracking.packing.compare": "(predictions, targets, *, overlap=iou, region_rank=None)",
    "tracking.packing.box_iou": "(a, b)",
    # What the factories make.
    "losses.overlap_loss(boxes.dice)": "(predictions, targets, *, where=None)",
    "masks.boundary_iou(ratio=0.01)": "(a, b)",
    "pairing.pairwise(boxes.ciou)": "(a, b)",
    "pairing.best_match(boxes.iou)": "(a, b, *, where=None)",
    "variants.siou()": "(a, b)",
    "variants.alpha_iou()": "(a, b)",
    "variants.mpdiou(image_size=(480, 640))": "(a, b)",
    "variants.inner_iou(ratio=0.7)": "(a, b)",
    "variants.nwd(constant=12.7)": "(a, b)",
    "variants.powerful_iou_v2()": "(predictions, targets)",
}
"""Every public function in the order of its module's `__all__`, and what factories make."""

DATA = {"self", "overlap", "a", "b", "predictions", "targets", "regions", "values", "x"}
DATA |= {"scores", "overlaps", "anchors", "truths", "labels"}
DATA |= {"prediction_labels", "target_labels", "ids", "colors", "matrix", "instances", "counts"}
DATA |= {"path", "file", "pair", "state", "detections", "tracks", "sequence", "frames"}
DATA |= {"table", "batches", "matches", "curves", "errors", "valid", "positive", "negative"}
DATA |= {"corners", "polygons"}
ALSO_POSITIONAL = {
    ("assigners.Assignment.take", "fill"): "as below",
    ("assignment.Matching.take", "fill"): "as below",
    ("boxes.clip", "height"): "the image, as much data as the boxes",
    ("boxes.clip", "width"): "likewise",
    ("detection.COCOeval.accumulate", "p"): "pycocotools' own",
    ("detection.kitti.choose_thresholds", "num_truths"): "the data",
    ("losses.update_running_mean", "running_mean"): "the state comes before the batch",
    ("metrics.coco_average_precision", "num_classes"): "the size of what it counts",
    ("metrics.coco_average_precision", "num_images"): "likewise",
    **{
        (name, "num_classes"): "says what labels mean, as the labels do"
        for name in (
            "protocols.mmseg",
            "segmentation.boundary_confusion_matrix",
            "segmentation.check_values",
            "segmentation.confusion_matrix",
            "segmentation.target_counts",
        )
    },
    ("metrics.tracking", "num_predictions"): "likewise",
    ("metrics.tracking", "num_targets"): "likewise",
    ("panoptic.pack", "segments_info"): "the annotation that belongs to the ids",
    ("protocols.by_place", "protocol"): "the data",
    ("protocols.scores", "protocol"): "as a matrix has no meaning without it",
    ("metrics.dice", "num_classes"): "what a metric is about",
    ("metrics.mean_iou", "num_classes"): "likewise",
    ("metrics.panoptic_quality", "num_classes"): "likewise",
    ("metrics.semantic_segmentation", "protocol"): "likewise",
    ("pairing.Match.take", "fill"): "`take(x, 0)` reads like `where(valid, x, 0)`",
    ("suppression.Selection.take", "fill"): "likewise",
}
"""Parameters besides the data that need no keyword, each with the reason."""

NO_ARRAYS = r"~|Callable|Metric|Protocol|Any|Pair|Path|Tracks|Sequence\[|Mapping|Loaded|Objects"
NO_ARRAYS += r"|Summary|list\["
"""Annotations of what are no arrays."""

HELPERS = {
    "detection.matching.check": "what all protocols check",
    "detection.matching.sort_keys": "what all protocols rank by",
    "losses.box_loss": "what losses of boxes are made of",
    "losses.masked_loss": "what losses of other modules are made of",
    "protocols.scores_of": "what metrics score their limbs with",
    "pairing.masked": "the same",
    "pairing.over_leading": "the same",
    "pairing.region_rank_of": "the same",
    "pairing.take": "what every result's method `take` is made of",
}
"""Functions of public modules for the library's own use, which `__all__` leaves out."""

LAYERS = [
    ["_typing", "_math", "_counts"],
    ["_checks"],
    ["_compiled", "_corners", "_greedy", "_histogram", "_scores"],
    ["_clamp", "_solids"],
    ["_hull"],
    ["_sums", "boxes", "rotated", "polygons", "masks"],
    ["variants", "cuboids", "gaussians"],  # each geometrically made of a kind above
    ["pairing"],
    ["_scored"],
    ["_fusion"],
    ["segmentation_losses", "suppression", "assignment"],
    ["losses", "assigners"],
    ["testing", "segmentation", "panoptic", "detection", "tracking"],
    ["protocols"],
    ["metrics"],
    ["readers"],
    ["_commands", "detection/_drop_in.py"],  # a class for scripts, which reads files as they do
    ["cli"],
    ["__main__"],
    ["__init__"],
]
"""A module imports from the layers above its own."""

SECTIONS = ["Args", "Attributes", "Returns", "Raises", "At the edges", "Gradient", "Example"]
SECTIONS += ["Reference"]

MEASURES = {"area", "intersection", "union", "enclosing", "oriented_intersection"}
"""Areas and boxes, not scores: their edge values follow from what an area is."""


def functions():
    return catalogue.public_functions()


def signature(function) -> str:
    """Names, kinds and defaults, without annotations."""
    s = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in s.parameters.values()]
    text = str(s.replace(parameters=bare, return_annotation=s.empty))
    text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)
    # A long tuple is a constant of its module.
    return re.sub(r"=\((?:\([^()]*\)|[^()]){40,}\)(?=[,)])", "=(...)", text)


def is_overlap(name: str) -> bool:
    """Whether a public function, or what it makes, is an overlap with a range."""
    module, _, function = name.partition(".")
    return (module == "variants") or (
        hasattr(functions()[name], "region_rank") and function not in MEASURES
    )


def is_loss(name: str) -> bool:
    return name.endswith("_loss")


by_name = pytest.mark.parametrize("name", list(functions()))


# What is public.


def test_signatures_are_those_of_the_table():
    found = {name: signature(function) for name, function in functions().items()}
    rows = {row.name: row for row in catalogue.ROWS}
    made = {name: signature(rows[name].function) for name in SIGNATURES if "(" in name}
    assert found | made == SIGNATURES
    assert [*found, *made] == list(SIGNATURES)


def test_every_public_file_is_a_public_module():
    files = {path.stem for path in PACKAGE.iterdir() if path.name[0] not in "_."}
    assert files - {"py", "cli"} | {"pairwise"} == set(jaxiou.__all__)
    assert jaxiou.pairwise is jaxiou.pairing.pairwise


@pytest.mark.parametrize("place", catalogue.public_modules())
def test_all_lists_the_functions_and_classes_of_the_module(place):
    module = catalogue.public_modules()[place]
    own = {
        name
        for name, x in vars(module).items()
        if name[0] != "_"
        and (inspect.isclass(x) or inspect.isfunction(inspect.unwrap(x)))
        and x.__module__ == module.__name__
    }
    helpers = {name.rpartition(".")[2] for name in HELPERS if name.rpartition(".")[0] == place}
    assert helpers <= own
    listed = {name: getattr(module, name) for name in module.__all__}
    # A module may list another's names as well, as `losses` does those of label maps.
    assert own - helpers == {
        name
        for name, x in listed.items()
        if hasattr(x, "__name__") and getattr(x, "__module__", None) == module.__name__
    }
    assert len(set(module.__all__)) == len(module.__all__)


# How it is called.


@by_name
def test_all_but_the_data_is_keyword_only(name):
    parameters = inspect.signature(functions()[name]).parameters.values()
    positional = {p.name for p in parameters if p.kind != p.KEYWORD_ONLY}
    assert positional - DATA == {p for function, p in ALSO_POSITIONAL if function == name}


@by_name
def test_no_parameter_is_called_like_a_module(name):
    parameters = set(inspect.signature(functions()[name]).parameters)
    assert not parameters & set(catalogue.public_modules())


def is_tuple(annotation) -> bool:
    """Whether an annotation is a NamedTuple of arrays."""
    named = isinstance(annotation, type) and issubclass(annotation, tuple)
    return named and annotation not in (jaxiou.metrics.Metric, jaxiou.protocols.Protocol)


def fields(kind):
    """The fields of a NamedTuple, and those of the NamedTuples in it; not those of one number."""
    for name, annotation in inspect.get_annotations(kind).items():
        if is_tuple(annotation):
            yield from fields(annotation)
        elif annotation is not int and not re.search(NO_ARRAYS, str(annotation)):
            yield name, annotation


def annotated(function):
    """Each parameter or result that holds arrays, with its annotation."""
    s = inspect.signature(function)
    for p in s.parameters.values():
        if p.name in DATA - {"overlap", "self"} | {"where", "height", "width", "running_mean"}:
            yield from parts(p.name, p.annotation)
    yield from parts("returns", s.return_annotation)


def parts(name, annotation):
    """An annotation, or those of a NamedTuple's fields, or nothing if it is none of arrays."""
    if is_tuple(annotation):
        yield from fields(annotation)
    elif annotation is not None and not re.search(NO_ARRAYS, str(annotation)):
        yield name, annotation


def says_a_shape(annotation) -> bool:
    parts = getattr(annotation, "__args__", (annotation,))
    return any(
        isinstance(part, type) and issubclass(part, jaxtyping.AbstractArray) for part in parts
    )


@pytest.mark.parametrize("row", catalogue.ROWS, ids=lambda row: row.name)
def test_every_array_is_annotated_with_a_shape(row):
    for function in (row.function, functions()[row.covers]):
        bare = [name for name, annotation in annotated(function) if not says_a_shape(annotation)]
        assert not bare


# How it is documented.


def sections(name: str) -> dict[str, str]:
    """The text of each section of a docstring; that before the first one under ''."""
    text = inspect.getdoc(functions()[name]) or ""
    parts = re.split(r"^([A-Z][\w ]+):\n(?=  )", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@by_name
def test_docstring_begins_with_one_sentence_and_has_its_sections_in_order(name):
    found = sections(name)
    assert re.fullmatch(r"[^\n]+\.", found.pop("").split("\n\n")[0].strip())
    assert list(found) == [section for section in SECTIONS if section in found]


@by_name
def test_docstring_explains_each_argument_and_the_result(name):
    s = inspect.signature(functions()[name])
    described = re.findall(r"^  (\w+): ", sections(name).get("Args", ""), flags=re.MULTILINE)
    assert described == [parameter for parameter in s.parameters if parameter != "self"]
    assert ("Raises" if s.return_annotation is None else "Returns") in sections(name)


@by_name
def test_docstring_has_an_example(name):
    if not name.endswith(".take"):  # shown where the result is made
        assert ">>> " in sections(name)["Example"]


@by_name
def test_docstring_says_what_happens_at_the_edges(name):
    if is_overlap(name) or is_loss(name):
        assert sections(name)["At the edges"]


@by_name
def test_docstring_says_what_the_gradient_is(name):
    differentiable = {row.covers for row in catalogue.ROWS if row.differentiable}
    is_conversion = re.match(r"boxes\.(from|to)_", name)  # linear: there is nothing to say
    if name in differentiable and not is_conversion and not name.endswith(".take"):
        assert sections(name)["Gradient"]


@by_name
def test_docstring_cites_the_paper(name):
    without = {"boxes.ioa", "losses.overlap_loss"}
    if (is_overlap(name) or is_loss(name)) and name not in without:
        assert re.search(r"(19|20)\d\d", sections(name)["Reference"])


# How it is layered.


def imports(path: Path):
    """`(name, at top level)` for each module that a file imports."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            assert node.module
            whole = node.module == jaxiou.__name__
            names = [f"{node.module}.{a.name}" for a in node.names] if whole else [node.module]
        else:
            continue
        yield from ((name, id(node) not in inside) for name in names)


FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("file", FILES)
def test_imports_point_one_way(file):
    layer = {module: depth for depth, modules in enumerate(LAYERS) for module in modules}
    own = file if file in layer else Path(file).parts[0].removesuffix(".py")
    for name, _ in imports(FILES[file]):
        package, _, module = name.partition(".")
        if package == jaxiou.__name__ and module.partition(".")[0] != Path(own).parts[0]:
            assert layer[module.partition(".")[0] or "__init__"] < layer[own], name


@pytest.mark.parametrize("file", FILES)
def test_top_level_imports_are_those_that_every_user_has(file):
    everywhere = {"jax", "jaxtyping", "numpy", jaxiou.__name__} | sys.stdlib_module_names
    allowed = everywhere | ({"chex"} if file == "_checks.py" else set())
    for name, top_level in imports(FILES[file]):
        assert name.partition(".")[0] in allowed or not top_level, name
        assert name != "chex" or file == "_checks.py"


def test_import_is_light():
    heavy = ["optax", "matplotlib", "sklearn", "scipy.stats", "PIL", "rich", "torch", "beartype"]
    code = f"import sys, jaxiou; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


# Its errors, which name the argument, what it is and what it must be.


def batch(row: Row, items: int) -> list:
    """Arguments of a call that the row's function takes: a batch, or one item."""

    def narrow(x):
        return x.astype(np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x

    made = [row.item(np.random.default_rng(seed)) for seed in range(items)]
    if not row.leading:
        return [jax.tree.map(narrow, x) for x in made[0]]
    return [narrow(np.stack(x)) for x in zip(*made, strict=True)]


def takes_boxes(row: Row) -> list[int]:
    """Which arguments are boxes: by the names that regions have, and four numbers each."""
    regions = {"a", "b", "predictions", "targets", "regions", "anchors", "truths"}
    if row.covers == "tracking.packing.pack":  # packs regions of every kind
        return []
    item = row.item(np.random.default_rng(0))
    return [
        place
        for place, (name, x) in enumerate(zip(row.parameters, item, strict=False))
        if name in regions and getattr(x, "shape", ())[-1:] == (4,) and x.dtype.kind == "f"
    ]


by_row = pytest.mark.parametrize(
    "row", [row for row in catalogue.ROWS if takes_boxes(row)], ids=lambda row: row.name
)

GENERIC = {"pairing.pairwise", "pairing.best_match", "losses.overlap_loss"} | {
    f"suppression.{name}"
    for name in ("nms", "soft_nms", "matrix_nms", "weighted_boxes_fusion", "non_maximum_merging")
}
"""Here the overlap raises, for a single region and in the names of its own arguments."""


def spoiled(row: Row, spoil):
    """For each argument that is boxes: its name, its shape and a call with it spoiled."""
    for place in takes_boxes(row):
        args = batch(row, 3)
        args[place] = spoil(args[place])
        name = "ab"[place] if row.covers in GENERIC else list(row.parameters)[place]
        yield name, np.shape(args[place]), functools.partial(row.function, *args)


@by_row
@pytest.mark.usefixtures("without_jaxtyping")
def test_list_is_a_type_error(row):
    for place, (_, _, call) in enumerate(spoiled(row, lambda x: x.tolist())):
        name = list(row.parameters)[place]
        with pytest.raises(TypeError, match=rf"^{name} must be a JAX or NumPy array, got list"):
            call()


@by_row
@pytest.mark.usefixtures("without_jaxtyping")
def test_wrong_last_axis_is_a_value_error(row):
    for name, shape, call in spoiled(row, lambda x: x[..., :3]):
        got = re.escape(str(list(shape[-1:] if row.covers in GENERIC else shape)))
        with pytest.raises(ValueError, match=rf"^{name} must have shape \[\.\.\., 4\].*got {got}"):
            call()


@by_row
@pytest.mark.parametrize("dtype", ["complex64", "bool"])
@pytest.mark.usefixtures("without_jaxtyping")
def test_numbers_that_are_not_real_are_a_type_error(row, dtype):
    for name, _, call in spoiled(row, lambda x: x.astype(dtype)):
        with pytest.raises(TypeError, match=rf"^{name} must hold .* got dtype {dtype}"):
            call()


@by_row
@pytest.mark.usefixtures("without_jaxtyping")
def test_integers_that_would_wrap_are_a_value_error(row):
    for place, (_, _, call) in enumerate(spoiled(row, lambda x: np.full(x.shape, 2**31))):
        name = list(row.parameters)[place]
        with pytest.raises(ValueError, match=rf"^{name} .*2147483648.* do not fit in 32 bits"):
            call()


@pytest.mark.parametrize(
    "row",
    [row for row in catalogue.ROWS if row.leading and len(takes_boxes(row)) == 2],
    ids=lambda row: row.name,
)
@pytest.mark.usefixtures("without_jaxtyping")
def test_leading_axes_that_do_not_broadcast_are_a_value_error(row):
    (a, _), (_, b) = batch(row, 3), batch(row, 2)
    first, second = list(row.parameters)[:2]
    got = re.escape(f"{first} {list(a.shape)} and {second} {list(b.shape)}")
    with pytest.raises(ValueError, match=rf"must broadcast, got {got}"):
        row.function(a, b)


@pytest.mark.parametrize("row", [r for r in catalogue.ROWS if r.where], ids=lambda row: row.name)
@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_where_is_an_error_that_names_it(row):
    args, where = batch(row, 3), row.where(np.random.default_rng(0))[0]
    if row.leading:
        where = np.stack([where] * 3)
    wider = np.ones((*where.shape[:-1], where.shape[-1] + 1), bool)
    for bad, error, reason in [
        (where.astype(np.int32), TypeError, "boolean, got dtype int32"),
        (where.tolist(), TypeError, "a JAX or NumPy array, got list"),
        (where[None], ValueError, f"rank {where.ndim} "),
        (wider, ValueError, re.escape(f"got {list(wider.shape)}")),
    ]:
        with pytest.raises(error, match=f"^where must .*{reason}"):
            row.function(*args, where=bad)
