"""torchvision's RetinaNet without its transform: images come normalised, on a canvas of fixed size."""

import torchvision
from torchvision.models.detection import retinanet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

import torch_rig
from torch_rig import torch


def anchor_generator(base, n_levels=5):
    sizes = tuple(
        (x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in (base << i for i in range(n_levels))
    )
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * n_levels)


def make_model(depth, classes, channels=256, base=32, frozen_norm=True, v2=False, trainable=3):
    """As retinanet_resnet50_fpn (v2: _v2) makes it, for other depths and widths too."""
    norm = FrozenBatchNorm2d if frozen_norm else torch.nn.BatchNorm2d
    body = getattr(torchvision.models, f"resnet{depth}")(weights=None, norm_layer=norm)
    stages = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable]
    stages += ["bn1"] if trainable == 5 else []
    for name, parameter in body.named_parameters():
        parameter.requires_grad_(any(name.startswith(stage) for stage in stages))
    wide = 512 if depth >= 50 else 128
    extra = LastLevelP6P7(4 * wide if v2 else channels, channels)
    layers = {f"layer{i + 2}": str(i) for i in range(3)}
    backbone = BackboneWithFPN(body, layers, [wide, 2 * wide, 4 * wide], channels, extra)
    anchors = anchor_generator(base)
    head = None
    if v2:
        group = lambda n: torch.nn.GroupNorm(32, n)  # noqa: E731
        head = retinanet.RetinaNetHead(channels, 9, classes, norm_layer=group)
        head.regression_head._loss_type = "giou"
    return retinanet.RetinaNet(backbone, classes, anchor_generator=anchors, head=head)


def normalise(pixels, sizes, dtype):
    """Zero outside the images."""
    x = torch_rig.normalise(pixels, dtype)
    for image, (height, width) in zip(x, sizes):
        image[:, height:] = 0
        image[:, :, width:] = 0
    return x


def run_network(model, pixels, sizes):
    """Outputs of the heads, anchors per image, and how many anchors each level has."""
    dtype = next(model.parameters()).dtype
    images = ImageList(normalise(pixels, sizes, dtype), [tuple(map(int, s)) for s in sizes])
    features = list(model.backbone(images.tensors).values())
    outputs = model.head(features)
    anchors = model.anchor_generator(images, features)
    return outputs, anchors, [9 * f.shape[2] * f.shape[3] for f in features]


def match(model, boxes, anchors):
    """In fp32, whatever the network computes in: as the published training does."""
    if len(boxes) == 0:
        return torch.full((len(anchors),), -1, dtype=torch.int64)
    return model.proposal_matcher(torchvision.ops.box_iou(boxes.float(), anchors.float()))


def losses(model, pixels, sizes, boxes, labels):
    """boxes, labels: of each image, without those that are none."""
    outputs, anchors, _ = run_network(model, pixels, sizes)
    dtype = next(model.parameters()).dtype
    targets = [
        {"boxes": torch.from_numpy(b).to(dtype), "labels": torch.from_numpy(l).long()}
        for b, l in zip(boxes, labels)
    ]
    matched = [match(model, t["boxes"], a) for t, a in zip(targets, anchors)]
    return model.head.compute_loss(targets, outputs, anchors, matched)


def detections(model, pixels, sizes):
    with torch.no_grad():
        outputs, anchors, per_level = run_network(model, pixels, sizes)
        split = {k: list(v.split(per_level, dim=1)) for k, v in outputs.items()}
        anchors = [list(a.split(per_level)) for a in anchors]
        shapes = [tuple(map(int, s)) for s in sizes]
        return model.postprocess_detections(split, anchors, shapes)
