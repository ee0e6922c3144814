package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// plain does with shell commands what the driver does, as durably: what an administrator would write in a script.
type plain struct {
	scripts map[string]string // by verb
	dir     string            // for what is made
	mounts  string            // for where it is mounted
}

// In the scripts $1 is the volume and $2 where it is mounted, $3 its source and $4 where that is, $5 a size. An image holds
// xfs.
const (
	copyMounted = `fsfreeze -f "$4" && cp --reflink=auto "$3" "$1"; s=$?; fsfreeze -u "$4" && sync "$1" && sync "$(dirname "$1")" && exit $s`
	removeImage = `rm "$1" && sync "$(dirname "$1")"`
	copySubvol  = `btrfs subvolume snapshot "$3" "$1" && btrfs qgroup limit "$5" "$1" && sync -f "$1"`
	removeSub   = `btrfs subvolume delete "$1"`
	detach      = `umount "$2" && umount "$2-staged" && rmdir "$2-staged" "$2"`
)

var scripts = map[string]map[string]string{
	"image": {
		"create":         `truncate -s "$5" "$1" && mkfs.xfs -q -s size=4096 -K "$1" && sync "$1" && sync "$(dirname "$1")"`,
		"attach":         `mkdir "$2-staged" "$2" && d=$(losetup --find --show --direct-io=on --sector-size 4096 "$1") && mount -o nouuid "$d" "$2-staged" && losetup -d "$d" && mount --bind "$2-staged" "$2"`,
		"snapshot":       copyMounted,
		"clone":          copyMounted,
		"restore":        `cp --reflink=auto "$3" "$1" && sync "$1" && sync "$(dirname "$1")"`,
		"expand":         `truncate -s "$5" "$1" && d=$(findmnt -no SOURCE "$2") && losetup -c "$d" && xfs_growfs "$2"`,
		"detach":         detach,
		"remove":         removeImage,
		"removeSnapshot": removeImage,
	},
	"directory": {
		"create":         `btrfs subvolume create "$1" && btrfs qgroup limit "$5" "$1" && sync -f "$1"`,
		"attach":         `mkdir "$2-staged" "$2" && mount --bind "$1" "$2-staged" && mount --bind "$2-staged" "$2"`,
		"snapshot":       `btrfs subvolume snapshot -r "$3" "$1" && sync -f "$1"`,
		"clone":          copySubvol,
		"restore":        copySubvol,
		"expand":         `btrfs qgroup limit "$5" "$1"`,
		"detach":         detach,
		"remove":         removeSub,
		"removeSnapshot": removeSub,
	},
}

func (p *plain) do(ctx context.Context, c call) error {
	volume, source := filepath.Join(p.dir, c.name), filepath.Join(p.dir, c.of)
	_, err := shell(ctx, p.scripts[c.verb], volume, p.path(c.name), source, p.path(c.of), fmt.Sprint(c.size))
	return err
}

func (p *plain) path(name string) string { return filepath.Join(p.mounts, "plain-"+name) }
