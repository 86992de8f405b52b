"""Results as JSON with one line per case, for people who read them and for diffs."""

import json


def rounded(value):
    """Numbers with ten digits, at any depth: what is computed from them again agrees, and no measurement has more."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def lines_of(key, value):
    """An entry of the file: objects and lists of objects have a line for each of their entries."""
    head = f" {json.dumps(key)}: "
    if isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values()):
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
        return f"{head}{{\n{rows}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = ",\n".join(f"  {json.dumps(entry)}" for entry in value)
        return f"{head}[\n{rows}]"
    return head + json.dumps(value)


def save(path, results):
    """Nothing without a path."""
    if not path:
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines_of(*entry) for entry in rounded(results).items()) + "\n}\n")
