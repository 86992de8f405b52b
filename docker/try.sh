#!/usr/bin/env bash
# Builds the CPU image of the last commit with podman, as root, and tries it: the quick start, and two
# containers that train together over ssh, each with a network of its own.
#
#   docker/try.sh [FOLDER]      # the working folder (default: a temporary one)
#
# Where debian:12-slim cannot be pulled, debootstrap makes it. PODMAN and RUN have the options that a
# machine needs, such as PODMAN="podman --runtime runc" and RUN="--ulimit nproc=1000:1000".
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(realpath -m "${1:-$(mktemp -d)}")
read -ra podman <<<"${PODMAN:-podman}"
read -ra run <<<"run --rm ${RUN:-}"
mkdir -p "$work/shared"
chmod 777 "$work/shared"

base=docker.io/library/debian:12-slim
if ! "${podman[@]}" image exists $base && ! "${podman[@]}" pull -q $base 2>/dev/null; then
    debootstrap --variant=minbase bookworm "$work/base" http://deb.debian.org/debian >"$work/debootstrap.log"
    rm -rf "$work"/base/usr/share/{doc,man,locale} "$work"/base/var/{cache/apt,lib/apt/lists}
    tar -C "$work/base" -c . | "${podman[@]}" import -q - $base
fi
rm -rf "$work/source"
git clone -q . "$work/source"
"${podman[@]}" build -q --isolation chroot -f "$work/source/docker/Dockerfile.cpu" -t dtrain "$work/source"
echo "try: the image has $(("$("${podman[@]}" image inspect -f '{{.Size}}' dtrain)" / 1000000)) MB," \
    "$(("$("${podman[@]}" image inspect -f '{{.Size}}' $base)" / 1000000)) of them Debian's"
"${podman[@]}" "${run[@]}" dtrain bash -c '! command -v gcc && ! command -v cmake && id -un'

echo "try: the quick start"
"${podman[@]}" "${run[@]}" --network=host dtrain /usr/share/dtrain/scripts/quickstart.sh | grep quickstart:

# Two hosts, 10.77.0.1 and .2; the first one launches.
ssh-keygen -q -t ed25519 -N '' -f "$work/id_ed25519" <<<y >/dev/null
cp "$work/id_ed25519.pub" "$work/authorized_keys"
chmod 644 "$work"/id_ed25519* "$work/authorized_keys"
end() {
    "${podman[@]}" rm -f dtrain-1 dtrain-2 >/dev/null 2>&1 || true
    for i in 1 2; do ip netns del dtrain-$i 2>/dev/null || true; done
}
trap end EXIT
end
for i in 1 2; do ip netns add dtrain-$i; done
ip link add dtrain-1 netns dtrain-1 type veth peer name dtrain-2 netns dtrain-2
for i in 1 2; do
    ip -n dtrain-$i addr add 10.77.0.$i/24 dev dtrain-$i
    ip -n dtrain-$i link set dtrain-$i up
    ip -n dtrain-$i link set lo up
    "${podman[@]}" "${run[@]}" -d --name dtrain-$i --network ns:/run/netns/dtrain-$i --hostname node$i \
        -v "$work/shared:/work" -v "$work/authorized_keys:/home/dtrain/.ssh/authorized_keys:ro" dtrain sshd >/dev/null
    "${podman[@]}" cp -a=false "$work/id_ed25519" dtrain-$i:/tmp/key
done
echo "try: two containers over ssh"
"${podman[@]}" exec dtrain-1 bash -c 'install -m 600 /tmp/key ~/.ssh/id_ed25519
    dtrain launch --hosts 10.77.0.1:1,10.77.0.2:1 -- doctor | grep -E "hosts|node"
    dtrain launch --hosts 10.77.0.1:1,10.77.0.2:1 -- --config resnet50_synthetic --out run \
        --set model.name=tiny --set train.max_steps=20 --set device.kind=cpu --set model.image_size=64 |
        grep -E "device|end:"'
