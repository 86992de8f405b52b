#!/usr/bin/env python3
"""Fills in a job script for several nodes and prints it. The templates are the scripts themselves:
slurm/dtrain.sbatch, pbs/dtrain.pbs, lsf/dtrain.lsf and k8s/mpijob.yaml. For example
  make_job.py --for slurm --nodes 4 --gpus 8 --config my.json > dtrain.sbatch
Options of dtrain itself follow after --, such as: -- --set train.precision=fp16; or a sub-command or
a script that starts it: -- bench, -- doctor, -- scripts/scaling.sh --np 8,16,32
"""

import argparse
import os
import re
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
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
    "mem": ("a number and a unit, such as 64G", r"[1-9]\d*[MGT]"),
    "module": ("names of modules, with commas", r"[\w./+-]+(,[\w./+-]+)*"),
    "qos": ("one word", r"[\w.-]+"),
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
    add("--qos", help="Slurm: quality of service; LSF: service class")
    add("--mem", help="memory of a node, such as 64G")
    add("--exclusive", action="store_true", help="whole nodes")
    add("--module", metavar="A,B", help="environment modules that the job loads")
    add("--line", action="append", default=[], help="another line of the head, such as '#SBATCH -C a100'; may be repeated")
    add("--name", default="dtrain", help="of the job and its files; default dtrain")
    add("--config", help="default config.json")
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


def find_config(parser, o):
    """Where dtrain looks: here, or for a name without a folder where configurations are."""
    folders = ["."]
    if o.config and "/" not in o.config:
        folders += os.environ.get("DTRAIN_CONFIG_PATH", "").split(":") + [os.path.join(HERE, "..", "configs")]
    names = [o.config or "", f"{o.config}.json"]
    if o.config and o.kind != "k8s":
        if not any(os.path.isfile(os.path.join(f, name)) for f in folders for name in names):
            parser.error(f"--config {o.config}: there is no such file; the job would end with 66")
    o.has_config = o.config is not None
    o.config = o.config or "config.json"


def check(parser, o):
    o.command = o.extra[0] if o.extra and not o.extra[0].startswith("-") else ""
    o.is_script = o.command.endswith(".sh")
    find_config(parser, o)
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
    if not all(text.isprintable() for text in (o.config, o.out or "", *o.env, *o.line, *o.extra)):
        parser.error("a line break or control character in --config, --out, --env, --line or an option of dtrain")
    for_batch = ("time", "queue", "account", "qos", "mem", "exclusive", "module", "line")
    if o.kind == "k8s" and (o.logs != "." or any(getattr(o, name) for name in for_batch)):
        parser.error(f"--logs, --{', --'.join(for_batch)} are not for k8s")
    if o.kind == "pbs" and o.qos:
        parser.error("PBS has no --qos; it may be a queue, or a --line such as '#PBS -l qos=high'")
    if o.command and o.out:
        parser.error(f"--out is the run folder of training; write the options of {o.command} behind it")
    if o.is_script and (o.container or o.kind == "k8s"):
        parser.error(f"{o.command} starts the ranks itself, which it cannot do in a container")
    if o.is_script and any(re.search(r"\s", text) for text in o.env):
        parser.error(f"--env with a space reaches no ranks that {o.command} starts")
    if o.kind == "k8s" and not o.container:
        parser.error("k8s needs --container IMAGE, one of docker/ that the nodes can pull")
    if o.kind in ("pbs", "lsf") and o.container and not o.container.endswith(".sif"):
        parser.error(f"--container {o.container}: under {o.kind} only .sif files, for apptainer")


def shell(o):
    """The lines that all templates have."""
    config = ["--config", o.config] if o.has_config or not o.command else []
    run = [*config, *(["--out", o.out] if o.out else []), *o.extra]
    if o.command:
        run = [*o.extra[:1], *config, *o.extra[1:]]
    if o.is_script:
        run = [*o.extra, *(["--", *config] if config and "--" not in o.extra else config)]
    launch = ["dtrain", "launch", "--ranks-per-node", str(o.ranks)]
    if o.cpus and not o.gpus:
        launch += ["--cpus", str(o.cpus)]
    if o.interface:
        launch += ["--interface", o.interface]
    if o.kind == "k8s":
        launch += ["--wait", "10m"]  # until its workers have started
    elif o.container and not o.container.endswith(".sif"):
        launch += ["--program", "dtrain"]
    elif o.container:
        launch += ["--program", f"apptainer exec {'--nv ' if o.gpus else ''}{o.container} dtrain"]
    for text in o.env:
        launch += ["--env", text]
    folder = ' --env "APPTAINER_BINDPATH=$PWD"' if (o.container or "").endswith(".sif") else ""
    return {
        "run=": f"({shlex.join(run)})",
        "launch=": f"({shlex.join(launch)}{folder})",
        "max_restarts=": o.max_restarts,
        "# Submit: ": (f"mkdir -p {o.logs} && " if o.logs != "." else "")
        + f"{SUBMIT[o.kind]} {o.name}.{TEMPLATES[o.kind].split('.')[1]}",
    }


def head(o):
    """The lines for the scheduler that follow the template's."""
    directive = {"slurm": "#SBATCH ", "pbs": "#PBS ", "lsf": "#BSUB "}.get(o.kind, "")
    options = []
    if o.kind == "slurm":
        options = [o.mem and f"--mem={o.mem}", o.qos and f"--qos={o.qos}", o.exclusive and "--exclusive"]
    if o.kind == "lsf":
        options = [o.mem and f'-R "rusage[mem={o.mem}/host]"', o.qos and f"-sla {o.qos}", o.exclusive and "-x"]
    modules = [f"\nmodule load {o.module.replace(',', ' ')}"] if o.module else []
    return [directive + option for option in options if option] + o.line + modules


def lines(o):
    """What each line of the template that begins so ends with; None: the line is omitted."""
    time, cpus = o.time or "24:00:00", o.cpus or 8
    of_all = shell(o)
    log = o.name if o.logs == "." else f"{o.logs}/{o.name}"
    if o.kind == "slurm":
        pyxis = None
        if not (o.container or ".sif").endswith(".sif"):
            pyxis = f'{o.container} --container-mounts=$PWD:$PWD --container-workdir=$PWD"'
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
            'export DTRAIN_MPIRUN="srun --cpus-per-task=$SLURM_CPUS_PER_TASK --container-image=': pyxis,
        }
    if o.kind == "pbs":
        gpus = f":ngpus={o.gpus}" if o.gpus else ""
        mem = f":mem={o.mem.lower()}b" if o.mem else ""
        return of_all | {
            "#PBS -N ": o.name,
            "#PBS -l select=": f"{o.nodes}:ncpus={o.ranks * cpus}:mpiprocs={o.ranks}{gpus}{mem}",
            "#PBS -l place=": "scatter:excl" if o.exclusive else "scatter",
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
    return of_all | {
        "name: ": o.name,
        "slotsPerWorker: ": o.ranks,
        "replicas: ": o.nodes,
        "image: ": o.container,
        "cpu: ": o.ranks * cpus,
        "nvidia.com/gpu: ": o.gpus,
        "- &work {name: work, persistentVolumeClaim: {claimName: ": f"{o.claim}}}}}",
    }


def fill(template, values, more):
    """Every beginning of a line must occur; behind a "#" it is switched off. `more` ends the head."""
    out, found = [], set()
    for line in template.splitlines():
        if not line and more:
            out += more
            more = []
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
    path = os.path.join(HERE, TEMPLATES[options.kind])
    with open(path, encoding="utf-8") as template:
        text = fill(template.read(), lines(options), head(options))
    if options.is_script:
        start = '"${launch[@]}" --max-restarts "$max_restarts" -- "${run[@]}" &'
        text = text.replace(start, 'DTRAIN_LAUNCH_OPTIONS="${launch[*]:2}" "${run[@]}" &')
    print(text)


main()
