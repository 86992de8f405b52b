# shellcheck shell=bash
# Settings that mpirun needs on small machines and in containers; sourced by the other scripts.
# DTRAIN: the program; launch: the words that start it on ranks, with DTRAIN_LAUNCH_OPTIONS.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
if [ -z "${DTRAIN:-}" ]; then # the program: of the build folder, or installed with these scripts
    DTRAIN=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    case $DTRAIN in */share/dtrain) DTRAIN+=/../../bin/dtrain ;; *) DTRAIN+=/build/dtrain ;; esac
fi
export I_MPI_PIN="${I_MPI_PIN:-0}"
read -ra launch <<<"${DTRAIN_LAUNCH_OPTIONS:-}"
launch=("$DTRAIN" launch ${launch[@]+"${launch[@]}"})
