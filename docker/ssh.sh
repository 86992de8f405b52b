#!/bin/sh
# While an image is built: the user dtrain, an sshd that it can start, and ssh without questions.
# mpi-operator mounts its keys into ~/.ssh; elsewhere mount your own.
set -e
useradd --create-home --shell /bin/bash dtrain
install -d -o dtrain -g dtrain /work /run/sshd /home/dtrain/.ssh
printf '%s\n' 'Port 2222' 'PidFile none' 'UsePAM no' 'StrictModes no' 'PasswordAuthentication no' \
    >/etc/ssh/sshd_config.d/dtrain.conf
printf '%s\n' 'Port 2222' 'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' \
    >/etc/ssh/ssh_config.d/dtrain.conf
