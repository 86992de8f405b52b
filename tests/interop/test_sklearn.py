"""Every metric of src/judge equals scikit-learn's to 1e-9: random scores with many ties, perfect
and inverted ones, one class only, classes without images or predictions, 2 to 50 classes.

    python3 test_sklearn.py BUILD/dtrain

What scikit-learn calls undefined (it warns and gives 0, or fails) is NaN in dtrain."""

import json
import os
import subprocess
import sys
import warnings

try:
    import numpy as np
    from sklearn import metrics
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "judge_tool")
warnings.simplefilter("ignore")  # undefined metrics


def draw(rng, classes, images, labels=None, grid=None):
    """Labels among `labels`; logits that lean towards them, on a grid of that step to make ties."""
    truth = rng.choice(range(classes) if labels is None else labels, images)
    logits = rng.normal(0, 2, (images, classes))
    logits[np.arange(images), truth] += 1
    if grid:
        logits = np.round(logits / grid) * grid
    return truth, logits.astype(np.float32)


def separated(sign):
    """The positives all above the negatives, or all below."""
    truth = np.array([0] * 7 + [1] * 5)
    logits = np.zeros((12, 2), np.float32)
    logits[:, 1] = sign * (truth * 20 - 10 + np.arange(12) / 8)
    return truth, logits


def all_cases(rng):
    yield from (separated(+1), separated(-1))
    yield np.array([0, 1, 1, 0]), np.zeros((4, 2), np.float32)  # one score for all
    for images in (1, 2, 3, 10, 500, 20000):
        for grid in (None, 0.25, 2):
            yield draw(rng, 2, images, grid=grid)
    for label in (0, 1):
        yield draw(rng, 2, 50, labels=[label], grid=0.5)
    for classes in (3, 7, 50):
        for images in (5, 40, 3000):
            yield draw(rng, classes, images, grid=0.5)
        yield draw(rng, classes, 60, labels=[0, 2])
        yield draw(rng, classes, 60, labels=[classes - 1], grid=1)
    truth, logits = draw(rng, 5, 80, labels=[0, 1, 3])
    logits[:, 4] = -100  # neither images nor predictions
    yield truth, logits


def softmax(logits):
    e = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def expect_two(truth, p, predicted):
    both, positives = len(set(truth)) == 2, 1 in truth
    want = {
        "auc": metrics.roc_auc_score(truth, p) if both else None,
        "average_precision": metrics.average_precision_score(truth, p) if positives else None,
        "sensitivity": metrics.recall_score(truth, predicted) if positives else None,
        "specificity": metrics.recall_score(truth, predicted, pos_label=0) if 0 in truth else None,
    }
    best = [None, None, None]
    if both:
        fpr, tpr, thresholds = metrics.roc_curve(truth, p, drop_intermediate=False)
        fpr, tpr, thresholds = fpr[1:], tpr[1:], thresholds[1:]  # without "nothing is positive"
        # Of almost equal values the first: rounding must not decide.
        at = np.argmax(tpr - fpr > (tpr - fpr).max() - 1e-12)
        best = [thresholds[at], tpr[at], 1 - fpr[at]]
    return want | dict(zip(["threshold", "best_sensitivity", "best_specificity"], best))


def expect(truth, logits):
    n = logits.shape[1]
    p, every = softmax(logits), range(n)
    predicted = logits.argmax(1)
    order = np.argsort(-logits, 1, kind="stable")
    want = {
        "loss": -np.log(p[range(len(truth)), truth]).mean(),
        "top1": metrics.accuracy_score(truth, predicted),
        "top5": np.mean((order[:, :5] == truth[:, None]).any(1)),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, predicted),
        "macro_f1": metrics.f1_score(truth, predicted, average="macro", zero_division=0),
    }
    want |= expect_two(truth, p[:, 1], predicted) if n == 2 else {}
    per_class = metrics.precision_recall_fscore_support(
        truth, predicted, labels=every, zero_division=0
    )
    confusion = metrics.confusion_matrix(truth, predicted, labels=every)
    return want, np.array(per_class).T, confusion


def difference(got, want):
    if got is None or want is None:
        return 0.0 if got is want else np.inf
    return abs(got - want)


rng = np.random.default_rng(1)
cases = list(all_cases(rng))
text = "".join(
    f"{logits.shape[1]} {len(truth)}\n"
    + "".join(f"{t} {' '.join(f'{x:.9g}' for x in row)}\n" for t, row in zip(truth, logits))
    for truth, logits in cases
)
lines = subprocess.run([TOOL], input=text, capture_output=True, text=True, check=True).stdout
worst = {}
for (truth, logits), line in zip(cases, lines.splitlines(), strict=True):
    got, n = json.loads(line), logits.shape[1]
    want, per_class, confusion = expect(truth, logits)
    found = {key: difference(got[key], value) for key, value in want.items()}
    found["per class"] = np.abs(np.array(got["classes"]) - per_class).max()
    cells = np.array(got["confusion"]).reshape(n, n + 1)
    found["confusion"] = np.abs(cells - np.pad(confusion, ((0, 0), (0, 1)))).max()
    for key, value in found.items():
        worst[key] = max(worst.get(key, 0), value)
        assert value <= 1e-9, (key, value, len(truth), n, got, want)
print(f"{len(cases)} cases, largest differences:", {k: float(f"{v:.1g}") for k, v in worst.items()})
