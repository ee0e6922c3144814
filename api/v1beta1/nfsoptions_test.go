package v1beta1

import (
	"strings"
	"testing"
)

func TestMountOptions_ThatNoServerSupportsAreRefused(t *testing.T) {
	for _, option := range []string{
		"nfsvers=3", "vers=3", "vers=4.0", "nfsvers=", "vers=4.3", "v3", "v2", "v4.0", "minorversion=0", "proto=udp", "proto=rdma", "udp", "rdma",
		"sec=krb5", "sec=krb5p",
	} {
		if err := CheckNFSOption(option); err == nil || !strings.Contains(err.Error(), option) || !strings.Contains(err.Error(), "4.1 and 4.2") {
			t.Errorf("%s: %v", option, err)
		}
	}
	for _, option := range []string{
		"", "nfsvers=4", "nfsvers=4.1", "vers=4.2", "v4", "v4.1", "minorversion=2", "proto=tcp", "proto=tcp6", "sec=sys", "nconnect=4", "noresvport", "soft", "volatile",
	} {
		if err := CheckNFSOption(option); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
}
