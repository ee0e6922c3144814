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
