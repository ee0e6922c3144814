package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// plain does with shell commands what the driver does, as durably: what an administrator would write in a script.
type plain struct {
	scripts map[string]string
	dir     string // for what is made
	mounts  string // for where it is mounted
}

var _ subject = (*plain)(nil)

// In the scripts $1 is the volume, $2 its source, $3 its mount point, $4 a size. An image holds xfs.
var (
	imageScripts = map[string]string{
		"create":         `truncate -s "$4" "$1" && mkfs.xfs -q -s size=4096 -K "$1" && sync "$1" && sync "$(dirname "$1")"`,
		"attach":         `mkdir "$3-staged" "$3" && d=$(losetup --find --show --direct-io=on --sector-size 4096 "$1") && mount -o nouuid "$d" "$3-staged" && losetup -d "$d" && mount --bind "$3-staged" "$3"`,
		"snapshot":       `fsfreeze -f "$3" && cp --reflink=auto "$2" "$1"; s=$?; fsfreeze -u "$3" && sync "$1" && sync "$(dirname "$1")" && exit $s`,
		"clone":          `fsfreeze -f "$3" && cp --reflink=auto "$2" "$1"; s=$?; fsfreeze -u "$3" && sync "$1" && sync "$(dirname "$1")" && exit $s`,
		"restore":        `cp --reflink=auto "$2" "$1" && sync "$1" && sync "$(dirname "$1")"`,
		"expand":         `truncate -s "$4" "$1" && d=$(findmnt -no SOURCE "$3") && losetup -c "$d" && xfs_growfs "$3"`,
		"detach":         `umount "$3" && umount "$3-staged" && rmdir "$3-staged" "$3"`,
		"remove":         `rm "$1" && sync "$(dirname "$1")"`,
		"removeSnapshot": `rm "$1" && sync "$(dirname "$1")"`,
	}
	subvolumeScripts = map[string]string{
		"create":         `btrfs subvolume create "$1" && btrfs qgroup limit "$4" "$1" && sync -f "$1"`,
		"attach":         `mkdir "$3-staged" "$3" && mount --bind "$1" "$3-staged" && mount --bind "$3-staged" "$3"`,
		"snapshot":       `btrfs subvolume snapshot -r "$2" "$1" && sync -f "$1"`,
		"clone":          `btrfs subvolume snapshot "$2" "$1" && btrfs qgroup limit "$4" "$1" && sync -f "$1"`,
		"restore":        `btrfs subvolume snapshot "$2" "$1" && btrfs qgroup limit "$4" "$1" && sync -f "$1"`,
		"expand":         `btrfs qgroup limit "$4" "$1"`,
		"detach":         `umount "$3" && umount "$3-staged" && rmdir "$3-staged" "$3"`,
		"remove":         `btrfs subvolume delete "$1"`,
		"removeSnapshot": `btrfs subvolume delete "$1"`,
	}
)

func newPlain(t target, dir, mounts string) *plain {
	scripts := imageScripts
	if t.engine == "directory" {
		scripts = subvolumeScripts
	}
	return &plain{scripts: scripts, dir: dir, mounts: mounts}
}

func (p *plain) do(ctx context.Context, verb, name, source, mounted string, size int64) error {
	_, err := shell(ctx, p.scripts[verb], filepath.Join(p.dir, name), filepath.Join(p.dir, source), p.path(mounted), fmt.Sprint(size))
	return err
}

func (p *plain) create(ctx context.Context, name string, size int64, _ string) error {
	return p.do(ctx, "create", name, "", name, size)
}

func (p *plain) attach(ctx context.Context, name string) error {
	return p.do(ctx, "attach", name, "", name, 0)
}

func (p *plain) snapshot(ctx context.Context, name, of string) error {
	return p.do(ctx, "snapshot", name, of, of, 0)
}

func (p *plain) restore(ctx context.Context, name, snapshot string, size int64) error {
	return p.do(ctx, "restore", name, snapshot, name, size)
}

func (p *plain) clone(ctx context.Context, name, of string, size int64) error {
	return p.do(ctx, "clone", name, of, of, size)
}

func (p *plain) expand(ctx context.Context, name string, size int64) error {
	return p.do(ctx, "expand", name, "", name, size)
}

func (p *plain) detach(ctx context.Context, name string) error {
	return p.do(ctx, "detach", name, "", name, 0)
}

func (p *plain) remove(ctx context.Context, name string) error {
	return p.do(ctx, "remove", name, "", name, 0)
}

func (p *plain) removeSnapshot(ctx context.Context, name string) error {
	return p.do(ctx, "removeSnapshot", name, "", name, 0)
}

func (p *plain) path(name string) string { return filepath.Join(p.mounts, "plain-"+name) }
