package nodeops

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrCannotKeep means that the file system of a copy cannot keep something of its source.
var ErrCannotKeep = errors.New("the target's file system cannot keep it")

// notOfTheContent are beginnings of names of extended attributes that belong to a file system, or to the host that
// mounts it, and not to the content:
//   - btrfs. has the compression of a file, as chattr +c, which is not copied either;
//   - ceph. is where a file lies in a Ceph cluster, its quota and its counters;
//   - security.evm signs the inode number and the UUID of the file system;
//   - security.selinux is set by the kubelet, for the pod that uses the volume;
//   - system.nfs4_ is how a client of NFS shows the mode and the access control list of the server;
//   - trusted.SGI_ACL_ is how XFS keeps the access control lists that system.posix_acl_ has;
//   - treeMark is of the copy.
//
// Everything else is copied, or it is an error that names it.
var notOfTheContent = []string{"btrfs.", "ceph.", "security.evm", "security.selinux", "system.nfs4_", "trusted.SGI_ACL_", treeMark}

// fact is a part of a node's metadata.
type fact struct{ name, value string }

// describeNode returns all metadata that a copy in another file system has too, in a fixed order. Access times are copied
// and are not in it: they are not content.
func describeNode(n *node) ([]fact, error) {
	facts := []fact{
		{"mode", fmt.Sprintf("%o", n.Mode)},
		{"owner", fmt.Sprintf("%d:%d", n.Uid, n.Gid)},
		{"modification time", fmt.Sprintf("%d.%09d", n.Mtim.Sec, n.Mtim.Nsec)},
	}
	switch n.kind() {
	case unix.S_IFREG:
		facts = append(facts, fact{"size", fmt.Sprint(n.Size)})
	case unix.S_IFCHR, unix.S_IFBLK:
		facts = append(facts, fact{"device number", fmt.Sprintf("%d:%d", unix.Major(n.Rdev), unix.Minor(n.Rdev))})
	case unix.S_IFLNK:
		target, err := readLink(n)
		if err != nil {
			return nil, err
		}
		facts = append(facts, fact{"link target", target})
	}
	xattrs, err := describeXattrs(n, notOfTheContent)
	if err != nil {
		return nil, err
	}
	return append(facts, xattrs...), nil
}

// compareNodes returns all metadata of a node, and in what its copy differs; "" if it does not.
func compareNodes(from, to *node) (facts []fact, what string, err error) {
	if facts, err = describeNode(from); err != nil {
		return nil, "", err
	}
	has, err := describeNode(to)
	return facts, difference(facts, has), err
}

// words are the names and values of facts.
func words(facts []fact) (all []string) {
	for _, f := range facts {
		all = append(all, f.name, f.value)
	}
	return all
}

const xattrFact = "attribute "

// describeXattrs returns the extended attributes without one of the prefixes, sorted.
func describeXattrs(n *node, without []string) (facts []fact, err error) {
	names, err := xattrNames(n)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		value, err := readXattr(n, name)
		if err != nil {
			return nil, err
		}
		facts = append(facts, fact{xattrFact + name, string(value)})
	}
	return facts, nil
}

// difference names the first fact in which two nodes differ; "" if there is none.
func difference(source, target []fact) string {
	of := func(facts []fact, name string) (string, bool) {
		i := slices.IndexFunc(facts, func(f fact) bool { return f.name == name })
		if i < 0 {
			return "", false
		}
		return facts[i].value, true
	}
	for _, f := range source {
		switch value, found := of(target, f.name); {
		case !found:
			return fmt.Sprintf("the target lacks the %s", f.name)
		case value != f.value:
			return fmt.Sprintf("the %s is %.200q, and %.200q at the target", f.name, f.value, value)
		}
	}
	for _, f := range target {
		if _, found := of(source, f.name); !found {
			return fmt.Sprintf("the target has the %s, which the source lacks", f.name)
		}
	}
	return ""
}

// keep copies all metadata of a node, whose facts are given, to its copy in another file system, and makes sure that it
// keeps them.
func keep(to, from *node, facts []fact) error {
	if err := copyAttributes(to, from, notOfTheContent); err != nil {
		return unkept(err)
	}
	if err := unix.Fstat(int(to.Fd()), &to.Stat_t); err != nil {
		return fmt.Errorf("%s: %w", to.Name(), err)
	}
	kept, err := describeNode(to)
	if err != nil {
		return err
	}
	if d := difference(facts, kept); d != "" {
		return fmt.Errorf("%s: %s: %w", from.Name(), d, ErrCannotKeep)
	}
	return nil
}

// syncXattrs makes the extended attributes of a node those of another, but for those with one of the prefixes. It has some
// already if its directory has a default access control list, or if SyncTree was interrupted. None of notOfTheContent is
// removed: nothing can remove security.selinux, and XFS has its lists under two names.
func syncXattrs(to, from *node, without []string) error {
	source, err := describeXattrs(from, without)
	if err != nil {
		return err
	}
	target, err := describeXattrs(to, notOfTheContent)
	if err != nil {
		return err
	}
	for _, f := range target {
		if slices.ContainsFunc(source, func(s fact) bool { return s.name == f.name }) {
			continue
		}
		if err := unix.Removexattr(to.magic(), strings.TrimPrefix(f.name, xattrFact)); err != nil {
			return fmt.Errorf("removing %s of %s: %w", f.name, to.Name(), err)
		}
	}
	for _, f := range source {
		if slices.Contains(target, f) {
			continue
		}
		if err := writeXattr(to, strings.TrimPrefix(f.name, xattrFact), []byte(f.value)); err != nil {
			return err
		}
	}
	return nil
}

// unkept recognizes the errors of metadata that a file system cannot keep. A lack of space is among them: ext4 returns it
// for an attribute that is too large, on a file system that has space.
func unkept(err error) error {
	for _, e := range []unix.Errno{unix.EOPNOTSUPP, unix.E2BIG, unix.ERANGE, unix.EINVAL, unix.EPERM, unix.ENOSPC, unix.EDQUOT, unix.EOVERFLOW} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %v", ErrCannotKeep, err)
		}
	}
	return err
}

func readLink(n *node) (string, error) {
	target := make([]byte, unix.PathMax)
	length, err := unix.Readlinkat(int(n.Fd()), "", target)
	if err != nil {
		return "", fmt.Errorf("reading the link %s: %w", n.Name(), err)
	}
	return string(target[:length]), nil
}

// seesAllXattrs refuses to copy without CAP_SYS_ADMIN: the kernel hides attributes of the namespace trusted then.
func seesAllXattrs() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return fmt.Errorf("without CAP_SYS_ADMIN, extended attributes of the namespace trusted cannot be seen; give it to the container: %w", unix.EPERM)
	}
	return nil
}
