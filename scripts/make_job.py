#!/usr/bin/env python3
"""Fills in a job script for several nodes and prints it. The templates are the scripts themselves:
slurm/dtrain.sbatch, pbs/dtrain.pbs, lsf/dtrain.lsf and k8s/mpijob.yaml. For example
  make_job.py --for slurm --nodes 4 --gpus 8 --config my.json > dtrain.sbatch
Options of dtrain itself follow after --, such as: -- --set train.precision=fp16
"""

import argparse
import os
import re
import shlex
import sys

TEMPLATES = {
    "slurm": "slurm/dtrain.sbatch",
    "pbs": "pbs/dtrain.pbs",
    "lsf": "lsf/dtrain.lsf",
    "k8s": "k8s/mpijob.yaml",
}
SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub <", "k8s": "kubectl apply -f"}
FORMS = {  # option: what it must look like, in words and as an expression
    "time": ("hours, minutes and seconds, such as 24:00:00", r"\d+:[0-5]\d:[0-5]\d"),
    "name": (
        "at most 40 lower-case letters, digits and hyphens, a letter first and no hyphen last",
        r"(?=.{1,40}$)[a-z]([-a-z0-9]*[a-z0-9])?",
    ),
    "interface": ("a name such as eth0, or several with commas", r"[\w.-]+(,[\w.-]+)*"),
    "queue": ("one word", r"[\w.-]+"),
    "account": ("one word", r"[\w.-]+"),
    "claim": ("one word", r"[\w.-]+"),
    "logs": ("a folder of letters, digits and ._/-", r"[\w./-]+"),
    "container": ("an image or a file of letters, digits and ._/:@#-", r"[\w/.][\w./:@#-]*"),
}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(64, f"make_job.py: {message}\n")


def count(text):
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 999999")
    return int(text)


def parse():
    own, extra = sys.argv[1:], []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--for", dest="kind", required=True, choices=TEMPLATES, help="scheduler")
    add("--nodes", type=count, required=True, metavar="N")
    add("--gpus", type=count, metavar="N", help="GPUs per node; one rank each")
    add("--ranks-per-node", type=count, metavar="N", help="without GPUs")
    add("--cpus", type=count, metavar="N", help="cores per rank; without GPUs ranks are bound to N")
    add("--time", help="limit of the job; default 24:00:00")
    add("--queue", "--partition", help="queue, or partition of Slurm")
    add("--account", help="account or project")
    add("--name", default="dtrain", help="of the job and its files; default dtrain")
    add("--config", default="config.json", help="default config.json")
    add("--out", help="run folder; default: output.dir of the configuration")
    add("--logs", default=".", help="folder for the job's output; default: the folder of the submission")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")
    add("--interface", help="network between the nodes, such as eth0")
    add("--container", help=".sif: apptainer; Slurm otherwise: pyxis; k8s: image (required)")
    add("--claim", default="dtrain", help="k8s: persistent volume claim; default dtrain")
    add("--max-restarts", type=count, default=50, metavar="N", help="default 50")
    options = parser.parse_args(own)
    options.extra = extra
    check(parser, options)
    return options


def check(parser, o):
    for name, (words, form) in FORMS.items():
        value = getattr(o, name)
        if value is not None and not re.fullmatch(form, value):
            parser.error(f"--{name} {value!r}: expected {words}")
    if o.gpus and o.ranks_per_node not in (None, o.gpus):
        parser.error(f"--ranks-per-node {o.ranks_per_node} with --gpus {o.gpus}: one rank per GPU")
    o.ranks = o.gpus or o.ranks_per_node
    if not o.ranks:
        parser.error("give --gpus N, or --ranks-per-node N for nodes without GPUs")
    for text in o.env:
        if not re.match(r"[A-Za-z_]\w*=", text):
            parser.error(f"--env {text!r}: expected NAME=VALUE")
    if any("\n" in text for text in (o.config, o.out or "", *o.env, *o.extra)):
        parser.error("a line break in --config, --out, --env or an option of dtrain")
    if o.kind == "k8s" and (o.time or o.queue or o.account or o.logs != "."):
        parser.error("--time, --queue, --account and --logs are not for k8s")
    if o.kind == "k8s" and not o.container:
        parser.error("k8s needs --container IMAGE, one of docker/ that the nodes can pull")
    if o.kind in ("pbs", "lsf") and o.container and not o.container.endswith(".sif"):
        parser.error(f"--container {o.container}: under {o.kind} only .sif files, for apptainer")


def shell(o):
    """The lines that all templates have."""
    run = ["dtrain", "--config", o.config, *(["--out", o.out] if o.out else []), *o.extra]
    bound = f":PE={o.cpus}" if o.cpus and not o.gpus else " --bind-to none"
    apptainer = f'(apptainer exec {"--nv " if o.gpus else ""}--bind "$PWD" {o.container})'
    return {
        "run=": f"({shlex.join(run)})",
        "placement=": f"(--map-by ppr:{o.ranks}:node{bound})",
        "variables=": f"({shlex.join(o.env)})",
        "interface=": o.interface or "",
        "max_restarts=": o.max_restarts,
        "container=": apptainer if (o.container or "").endswith(".sif") else "()",
        "# Submit: ": (f"mkdir -p {o.logs} && " if o.logs != "." else "")
        + f"{SUBMIT[o.kind]} {o.name}.{TEMPLATES[o.kind].split('.')[1]}",
    }


def lines(o):
    """What each line of the template that begins so ends with; None: the line is omitted."""
    time, cpus = o.time or "24:00:00", o.cpus or 8
    of_all = shell(o)
    log = o.name if o.logs == "." else f"{o.logs}/{o.name}"
    if o.kind == "slurm":
        pyxis = None
        if not (o.container or ".sif").endswith(".sif"):
            pyxis = '"$SLURM_CPUS_PER_TASK"'
            pyxis += f' --container-image={o.container} --container-mounts="$PWD:$PWD"'
            pyxis += ' --container-workdir="$PWD")'
        return of_all | {
            "#SBATCH --job-name=": o.name,
            "#SBATCH --nodes=": o.nodes,
            "#SBATCH --ntasks-per-node=": o.ranks,
            "#SBATCH --cpus-per-task=": cpus,
            "#SBATCH --gpus-per-node=": o.gpus,
            "#SBATCH --time=": time,
            "#SBATCH --partition=": o.queue,
            "#SBATCH --account=": o.account,
            "#SBATCH --output=": f"{log}-%j.log",
            "# Without mpirun, where": " Slurm and Open MPI share PMIx:" if pyxis else None,
            "launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=": pyxis,
        }
    if o.kind == "pbs":
        gpus = f":ngpus={o.gpus}" if o.gpus else ""
        return of_all | {
            "#PBS -N ": o.name,
            "#PBS -l select=": f"{o.nodes}:ncpus={o.ranks * cpus}:mpiprocs={o.ranks}{gpus}",
            "#PBS -l walltime=": time,
            "#PBS -q ": o.queue,
            "#PBS -A ": o.account,
            "#PBS -o ": None if o.logs == "." else f"{o.logs}/",
            "script=": f"{o.name}.pbs",
        }
    if o.kind == "lsf":
        return of_all | {
            "#BSUB -J ": o.name,
            "#BSUB -n ": o.nodes * o.ranks * cpus,
            '#BSUB -R "span[ptile=': f'{o.ranks * cpus}]"',
            '#BSUB -gpu "num=': f'{o.gpus}:j_exclusive=yes"' if o.gpus else None,
            "#BSUB -W ": time[:-3],
            "#BSUB -q ": o.queue,
            "#BSUB -P ": o.account,
            "#BSUB -o ": f"{log}-%J.log",
        }
    del of_all["container="]
    return of_all | {
        "name: ": o.name,
        "slotsPerWorker: ": o.ranks,
        "replicas: ": o.nodes,
        "image: ": o.container,
        "cpu: ": o.ranks * cpus,
        "nvidia.com/gpu: ": o.gpus,
        "claimName: ": o.claim,
    }


def fill(template, values):
    """Every beginning of a line must occur; behind a "#" it is switched off."""
    out, found = [], set()
    for line in template.splitlines():
        text = line.lstrip()
        start = next((s for s in values if text.startswith((s, "#" + s))), None)
        found.add(start)
        if start is None:
            out.append(line)
        elif values[start] is not None:
            out.append(f"{line[: len(line) - len(text)]}{start}{values[start]}".rstrip())
    missing = values.keys() - found
    assert not missing, missing
    return "\n".join(out)


def main():
    options = parse()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), TEMPLATES[options.kind])
    with open(path, encoding="utf-8") as template:
        print(fill(template.read(), lines(options)))


main()
