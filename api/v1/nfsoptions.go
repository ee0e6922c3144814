package v1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shortVersion is another way to say vers.
var shortVersion = regexp.MustCompile(`^v[0-9.]+$`)

// nfsAnswers are the values with which the server can be mounted, of the options that choose how it is spoken to.
var nfsAnswers = map[string][]string{
	"vers": {"4", "4.1", "4.2"}, "nfsvers": {"4", "4.1", "4.2"}, "minorversion": {"1", "2"}, "proto": {"tcp", "tcp6"}, "sec": {"sys"},
	"udp": nil, "udp6": nil, "rdma": nil,
}

// CheckNFSOption refuses an option of mount.nfs with which nobody could mount what a server exports.
func CheckNFSOption(option string) error {
	key, value, _ := strings.Cut(option, "=")
	if shortVersion.MatchString(option) {
		key, value = "vers", option[1:]
	}
	if allowed, limited := nfsAnswers[key]; limited && !slices.Contains(allowed, value) {
		return fmt.Errorf("mount option %.80q: the server speaks NFS 4.1 and 4.2 only, over TCP and with sec=sys; leave it out", option)
	}
	return nil
}

// usualOptions suit the server: the newest NFS, waiting for it as long as it takes, and reconnecting from any port.
var usualOptions = []string{"nfsvers=4.2", "hard", "noresvport"}

// rivals are options of which a mount has one.
var rivals = [][]string{{"nfsvers", "vers", "minorversion"}, {"hard", "soft", "softerr"}, {"noresvport", "resvport"}}

// NFSMountOptions are those of a PersistentVolume of the external provisioner whose class has none: what the server says,
// and before it the usual ones that it does not contradict.
func NFSMountOptions(ofServer []string) []string {
	open := func(usual string) bool {
		i := slices.IndexFunc(rivals, func(all []string) bool { return slices.Contains(all, optionKey(usual)) })
		return !slices.ContainsFunc(ofServer, func(o string) bool { return slices.Contains(rivals[i], optionKey(o)) })
	}
	return slices.Concat(slices.DeleteFunc(slices.Clone(usualOptions), func(usual string) bool { return !open(usual) }), ofServer)
}

func optionKey(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}
