// Package mkfs has the table of the options of mkfs that a volume may be made with. It runs nothing: who makes a file
// system goes by it, and so does who checks a class.
package mkfs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The allowed mkfs options: only those that change the layout inside the file system. None refers to a file or device,
// changes block or sector sizes, or makes a file system that cannot be mounted, grown or recovered after a crash.

// rules maps a flag of one mkfs to the pattern that its whole value must match.
type rules map[string]*regexp.Regexp

const (
	number = `[0-9]{1,12}`
	amount = `[0-9]{1,12}[kKmMgG]?`
	onOff  = `[01]`
)

var flags = map[string]rules{
	"ext4": {
		"-E": list(
			"lazy_itable_init="+onOff, "lazy_journal_init="+onOff, "packed_meta_blocks="+onOff, "num_backup_sb=[012]",
			"stride="+number, "stripe[_-]width="+number, "resize="+number, "root_owner="+number+":"+number, "nodiscard",
		),
		"-G": fullMatch(number),
		"-I": fullMatch(`256|512|1024|2048|4096`),
		"-J": list("size="+number, "fast_commit_size="+number),
		"-L": label(16),
		"-N": fullMatch(number),
		"-O": list(
			`\^?dir_index`, `\^?flex_bg`, `\^?huge_file`, `\^?metadata_csum`, `\^?metadata_csum_seed`, `\^?uninit_bg`, `\^?64bit`,
			`\^?ea_inode`, `\^?fast_commit`, `\^?inline_data`, `\^?large_dir`, `\^?orphan_file`, `dir_nlink`, `extent`, `extra_isize`,
			`filetype`, `has_journal`, `large_file`, `resize_inode`, `sparse_super`,
		),
		"-T": fullMatch(`news|largefile|largefile4|big|huge`),
		"-e": fullMatch(`continue|remount-ro`),
		"-i": fullMatch(`[0-9]{1,10}[kKmM]?`),
		"-m": fullMatch(`[0-9]{1,2}(\.[0-9]{1,3})?`),
	},
	"xfs": {
		"-L": label(12),
		"-d": list("su="+amount, "sw="+number, "sunit="+number, "swidth="+number, "agcount="+number, "agsize="+amount,
			"cowextsize="+number, "extszinherit="+number, "noalign"),
		"-i": list("maxpct="+number, "size=(512|1024|2048)", "sparse="+onOff, "nrext64="+onOff, "attr=2", "projid32bit=1"),
		"-l": list("size="+amount, "su="+amount, "sunit="+number, "lazy-count=1", "version=2", "internal=1"),
		"-m": list("crc=1", "bigtime="+onOff, "finobt="+onOff, "inobtcount="+onOff, "reflink="+onOff, "rmapbt="+onOff),
		"-n": list("size="+amount, "version=2", "ftype=1"),
	},
	"btrfs": {
		"--csum": fullMatch(`crc32c|xxhash|sha256|blake2`),
		"-L":     label(64),
		"-O":     list(`\^?block-group-tree`, `\^?extref`, `\^?free-space-tree`, `\^?no-holes`, `\^?skinny-metadata`, "quota"),
		"-R":     list(`\^?free-space-tree`, "quota"),
		"-d":     fullMatch(`single|dup`),
		"-m":     fullMatch(`single|dup`),
		"-n":     fullMatch(`4096|8192|16384|32768|65536|4[kK]|8[kK]|16[kK]|32[kK]|64[kK]`),
	},
}

// otherNames are the long forms of flags.
var otherNames = map[string]string{
	"--checksum": "--csum", "--data": "-d", "--features": "-O", "--label": "-L", "--metadata": "-m", "--nodesize": "-n",
	"--runtime-features": "-R",
}

// refusals are the reasons for refused flags that users may expect to work.
var refusals = map[string]string{
	"ext4 -b":  "blocks have 4096 bytes, so that every host can mount the volume",
	"xfs -b":   "blocks have 4096 bytes, so that every host can mount the volume",
	"xfs -s":   "sectors have 4096 bytes, as the volume's device has",
	"btrfs -s": "sectors have 4096 bytes, as the volume's device has",
	"xfs -r":   "a volume has one device",
	"btrfs -M": "mixed groups cannot be combined with the layout of a volume",
	"ext4 -d":  "a volume is empty at first",
	"xfs -p":   "a volume is empty at first",
	"btrfs -r": "a volume is empty at first",
	"ext4 -U":  "two volumes must never share an identity",
	"btrfs -U": "two volumes must never share an identity",
	"ext4 -F":  "a device that holds data is never formatted",
	"xfs -f":   "a device that holds data is never formatted",
	"btrfs -f": "a device that holds data is never formatted",
}

func fullMatch(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)$`) }

// list matches values that are separated by commas.
func list(patterns ...string) *regexp.Regexp {
	one := `(?:` + strings.Join(patterns, `|`) + `)`
	return fullMatch(one + `(?:,` + one + `)*`)
}

func label(most int) *regexp.Regexp {
	return fullMatch(fmt.Sprintf(`[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}`, most-1))
}

// Option is a flag with its value; every allowed flag has one.
type Option struct{ Flag, Value string }

// Options are those of one file system.
type Options []Option

// Flags are those that are allowed.
func Flags(fstype string) []string { return slices.Sorted(maps.Keys(flags[fstype])) }

// Parse reads options, and fails for one that is not allowed. A flag and its value may be one element ("-i8192",
// "--label=data") or two.
func Parse(fstype string, options []string) (Options, error) {
	rules, ok := flags[fstype]
	if !ok {
		return nil, fmt.Errorf("file system %q is not supported; use ext4, xfs or btrfs", shorten(fstype))
	}
	var given Options
	for i := 0; i < len(options); i++ {
		flag, value, joined := splitFlag(options[i])
		pattern := rules[flag]
		if pattern == nil {
			return nil, refuse(fstype, flag)
		}
		if !joined {
			i++
			if i == len(options) {
				return nil, fmt.Errorf("mkfs option %s of %s needs a value", flag, fstype)
			}
			value = options[i]
		}
		if !pattern.MatchString(value) {
			return nil, fmt.Errorf("mkfs option %s of %s cannot be %q; it must match %s", flag, fstype, shorten(value), pattern)
		}
		if given.Has(flag) {
			return nil, fmt.Errorf("mkfs option %s of %s is given twice; give it once, with its values joined by commas", flag, fstype)
		}
		given = append(given, Option{flag, value})
	}
	return given, nil
}

// splitFlag splits an option into the flag, in its short form, and a value that is joined to it.
func splitFlag(option string) (flag, value string, joined bool) {
	if strings.HasPrefix(option, "--") {
		flag, value, joined = strings.Cut(option, "=")
		if short, ok := otherNames[flag]; ok {
			flag = short
		}
		return flag, value, joined
	}
	if len(option) > 2 && option[0] == '-' {
		return option[:2], option[2:], true
	}
	return option, "", false
}

func refuse(fstype, flag string) error {
	allowed := strings.Join(Flags(fstype), " ")
	if reason, ok := refusals[fstype+" "+flag]; ok {
		return fmt.Errorf("mkfs option %s of %s is not allowed: %s; allowed are %s", flag, fstype, reason, allowed)
	}
	return fmt.Errorf("mkfs option %q of %s is not allowed; allowed are %s", shorten(flag), fstype, allowed)
}

// Has returns whether a flag is among them.
func (o Options) Has(flag string) bool {
	return slices.ContainsFunc(o, func(option Option) bool { return option.Flag == flag })
}

// Args are those of a program.
func (o Options) Args() []string {
	var args []string
	for _, option := range o {
		args = append(args, option.Flag, option.Value)
	}
	return args
}

// shorten truncates a value from outside for a message.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
