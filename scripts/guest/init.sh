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
mkdir -p /guest/dev/shm
mount -t tmpfs tmpfs /guest/dev/shm
script=$(sed -n 's/.*guest_script=\([^ ]*\).*/\1/p' /guest/proc/cmdline)
echo 'guest: up'
chroot /guest /bin/sh "$script"
echo "guest: exit status $?"
poweroff -f
