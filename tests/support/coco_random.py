"""Random ground truth and detections in the formats of COCO: with ties, crowds, empty images."""


def make(rng, n_images, n_boxes, n_found, n_categories):
    """Ground truth and detections."""
    images = [{"id": 3 * i + 1, "file_name": f"{i}.jpg", "width": 640, "height": 480} for i in range(n_images)]
    categories = [{"id": 2 * k + 1, "name": f"kind {k}"} for k in range(n_categories)]

    def any_box():
        return [rng.uniform(0, 600), rng.uniform(0, 440), rng.uniform(4, 300), rng.uniform(4, 300)]

    boxes, found = [], []
    for i in range(n_boxes):
        box = any_box()
        box[2:] = rng.choice(([32, 32], [96, 96], [box[2] / 5, box[3] / 5], box[2:]))
        area = box[2] * box[3] * rng.choice((1, 1, 0.5, 0.7))
        owner = {"image_id": rng.choice(images)["id"], "category_id": rng.choice(categories)["id"]}
        boxes.append({"id": i + 1, **owner, "bbox": box, "area": area, "iscrowd": int(rng.random() < 0.03)})
    for _ in range(n_found):
        score = round(rng.random(), 2)
        if rng.random() < 0.4:
            near = rng.choice(boxes)
            box = [abs(v + rng.choice((0, rng.gauss(0, 0.06 * near["bbox"][2])))) for v in near["bbox"]]
            owner = {key: near[key] for key in ("image_id", "category_id")}
        else:
            box = any_box()
            owner = {"image_id": rng.choice(images)["id"], "category_id": rng.choice(categories)["id"]}
        found.append({**owner, "bbox": box, "score": score})
    return {"images": images, "annotations": boxes, "categories": categories}, found
