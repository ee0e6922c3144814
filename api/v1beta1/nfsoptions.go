package v1beta1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shortVersion is another way to say vers.
var shortVersion = regexp.MustCompile(`^v[0-9.]+$`)

// nfsAnswers are the values with which the server can be mounted, of the options that choose the protocol.
var nfsAnswers = map[string][]string{
	"vers": {"4", "4.1", "4.2"}, "nfsvers": {"4", "4.1", "4.2"}, "minorversion": {"1", "2"}, "proto": {"tcp", "tcp6"}, "sec": {"sys"},
	"udp": nil, "udp6": nil, "rdma": nil,
}

// CheckNFSOption refuses an option of mount.nfs with which no client could mount an export of a server.
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

// usualOptions suit the server: the newest NFS, waiting for it indefinitely, and reconnecting from any port.
var usualOptions = []string{"nfsvers=4.2", "hard", "noresvport"}

// rivals are options that exclude each other.
var rivals = [][]string{{"nfsvers", "vers", "minorversion"}, {"hard", "soft", "softerr"}, {"noresvport", "resvport"}}

// NFSMountOptions are those of a PersistentVolume of the external provisioner whose class has none: those of the
// server, and before them the usual ones that they do not contradict.
func NFSMountOptions(ofServer []string) []string {
	open := func(usual string) bool {
		i := slices.IndexFunc(rivals, func(all []string) bool { return slices.Contains(all, optionKey(usual)) })
		return !slices.ContainsFunc(ofServer, func(o string) bool { return slices.Contains(rivals[i], optionKey(o)) })
	}
	return slices.Concat(slices.DeleteFunc(slices.Clone(usualOptions), func(usual string) bool { return !open(usual) }), ofServer)
}

// NFSPortOption is what a PersistentVolume of a server needs that has another port; 0 is the usual one.
func NFSPortOption(port int32) []string {
	if port == 0 {
		return nil
	}
	return []string{fmt.Sprint("port=", port)}
}

func optionKey(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}
