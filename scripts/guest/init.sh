#!/bin/busybox sh
# First process of a guest: the host's files, read-only, under a throw-away overlay, then guest_script of them.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do
  insmod "/modules/$module" || echo "guest: $module did not load"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /host || poweroff -f
mount -t tmpfs tmpfs /upper
mkdir -p /upper/files /upper/work
mount -t overlay overlay -o lowerdir=/host,upperdir=/upper/files,workdir=/upper/work /guest
for folder in proc sys dev; do mount --move /$folder /guest/$folder; done
cd /guest/dev
mkdir -p shm pts virtio-ports
mount -t tmpfs tmpfs shm
mount -t devpts devpts pts
ln -s /proc/self/fd fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${number%:*}" "${number#*:}"; done
for port in /guest/sys/class/virtio-ports/*; do
  [ -s "$port/name" ] && ln -s "../${port##*/}" "virtio-ports/$(cat "$port/name")"
done
cd /
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link set lo up
echo 'guest: up'
chroot /guest /bin/sh "$(sed -n 's/.*guest_script=\([^ ]*\).*/\1/p' /guest/proc/cmdline)"
status=$?
echo "guest: exit status $status"
echo "$status" >/guest/dev/virtio-ports/dualpath.status
poweroff -f
