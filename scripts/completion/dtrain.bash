# shellcheck shell=bash
# Completion of dtrain for bash; dtrain itself knows the words. Also behind mpirun, after
# `complete -o default -F _dtrain mpirun`.
_dtrain() {
    local line=${COMP_LINE:0:COMP_POINT} cut='' word i=0
    local -a words
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    while ((i < ${#words[@]} - 1)) && [[ ${words[i]##*/} != dtrain ]]; do ((i++)); done
    # Where "=" ends a word for bash, it replaces only what follows.
    word=${words[-1]}
    [[ $COMP_WORDBREAKS != *=* || $word != *=* ]] || cut=${word%=*}=
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        COMPREPLY+=("${word#"$cut"}")
    done < <("${words[i]}" complete -- "${words[@]:i+1}" 2>/dev/null)
    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -o default -F _dtrain dtrain
