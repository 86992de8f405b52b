#!/bin/sh
# What follows the name of the image: a program such as mpirun or bash; sshd, for a node that others
# reach; or else words for dtrain.
case "${1-}" in
mpirun | bash | sh | dtrain | /*) exec "$@" ;;
sshd)
    key=$(mktemp -d)/key # of this container alone
    ssh-keygen -q -t ed25519 -N '' -f "$key"
    exec /usr/sbin/sshd -De -h "$key"
    ;;
*) exec dtrain "$@" ;;
esac
