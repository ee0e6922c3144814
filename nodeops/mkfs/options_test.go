package mkfs

import (
	"strings"
	"testing"
)

func TestParse_OptionsThatReachOutsideOrBreakAVolumeAreRefused(t *testing.T) {
	for fstype, refused := range map[string][]string{
		"ext4": {
			"-b 1024", "-b1024", "-d /etc", "-d/etc", "-l badblocks", "-z undo", "-F", "-n", "-S", "-c", "-V", "-t ext2", "-M /", "-i",
			"-J device=/dev/vda", "-J size=4,device=UUID=1", "-J location=1", "-O journal_dev", "-O ^has_journal",
			"-O bigalloc", "-O none", "-O quota",
			"-E offset=4096", "-E discard", "-E test_fs", "-E stride=8,offset=1", "-E mmp_update_interval=1", "-e panic",
			"-L /dev/vda", "-L -x", "-L seventeen-letters", "-U clear", "-I 128", "-i 8192 -i 4096", "-m -1", "-T small,/x",
			"-", "--", "/dev/vda", "8192",
		},
		"xfs": {
			"-b size=1024", "-s size=512", "-f", "-N", "-p /etc/passwd", "-c options=/etc/passwd", "-r rtdev=/dev/vda", "-d",
			"-d file,name=/etc/x,size=1g", "-d name=/dev/vda", "-d su=64k,file=1", "-d sectsize=512", "-d size=1g", "-d agcount=2,",
			"-l logdev=/dev/vda", "-l internal=0", "-l file=1,name=x", "-l sectsize=512", "-m crc=0", "-m uuid=1", "-n version=ci", "-n ftype=0",
			"-L thirteen-char", "-m reflink=0 -m rmapbt=0",
		},
		"btrfs": {
			"-s 8192", "-f", "-r /etc", "--rootdir /etc", "--rootdir=/etc", "--shrink", "-b 1g", "--byte-count 1g",
			"-M", "-O mixed-bg", "-m raid1", "-d raid0",
			"-O zoned", "-O list-all", "-U random", "--uuid=1", "-n 2048", "-d single --data dup", "/dev/vda", "--data",
		},
	} {
		for _, options := range refused {
			if _, err := Parse(fstype, strings.Fields(options)); err == nil {
				t.Errorf("%s: %q was accepted", fstype, options)
			}
		}
	}
	for _, odd := range [][]string{{"-L", ""}, {"-i", "8192\n"}, {"-i", "8192 -F"}, {""}, {"\x00"}} {
		if _, err := Parse("ext4", odd); err == nil {
			t.Errorf("%q was accepted", odd)
		}
	}
}

func TestParse_RefusalNamesTheAllowedValues(t *testing.T) {
	for _, c := range []struct {
		fstype string
		option []string
		want   string
	}{
		{"ext4", []string{"-b", "1024"}, "4096"},
		{"xfs", []string{"-s", "size=512"}, "sectors"},
		{"btrfs", []string{"-f"}, "never formatted"},
		{"ext4", []string{"-q"}, "-E -G -I"},
		{"ext4", []string{"-I", "100"}, "256|512"},
	} {
		_, err := Parse(c.fstype, c.option)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.fstype) {
			t.Errorf("%s %q: %v, want %q and the file system in it", c.fstype, c.option, err, c.want)
		}
	}
}
