package nfsserver

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// The longest name, with which that of the pod's revision is still a label, and the bounds of the grace period of NFS.
const (
	longestName   = 48
	shortestGrace = time.Second
	longestGrace  = 180 * time.Second
)

// checkServer refuses specs that cannot or must not be served, before anything is created. The API server refuses most of them;
// an object may be older than the rule. others are all servers of the namespace.
func checkServer(s *v1beta1.NFSServer, others []*v1beta1.NFSServer) error {
	spec := &s.Spec
	if wrong := validation.IsDNS1123Label(s.Name); len(wrong) > 0 || len(s.Name) > longestName {
		return fmt.Errorf("metadata.name: %.80q cannot name a server: at most %d letters, digits and - are allowed", s.Name, longestName)
	}
	if (spec.Storage == nil) == (spec.Publish == nil) {
		return fmt.Errorf("spec.storage: give it, or spec.publish with a claim that exists, and not both")
	}
	if spec.Publish != nil && spec.Access() == v1beta1.NFSReadWrite {
		return fmt.Errorf("spec.exports.access: %s is not allowed with spec.publish: what is published is read only", spec.Access())
	}
	if g, err := spec.GracePeriod.Or(shortestGrace); err != nil || g < shortestGrace || g > longestGrace || g%time.Second != 0 {
		return fmt.Errorf("spec.gracePeriod: %.80q is not allowed: it must be %s to %s, in whole seconds, such as 90s", *spec.GracePeriod, shortestGrace, longestGrace)
	}
	for i, c := range spec.Exports.Clients {
		if err := checkClient(c); err != nil {
			return fmt.Errorf("spec.exports.clients[%d]: %.80q %w", i, c, err)
		}
	}
	for i, o := range spec.MountOptions {
		if err := v1beta1.CheckNFSOption(o); err != nil {
			return fmt.Errorf("spec.mountOptions[%d]: %w", i, err)
		}
	}
	if servesImages(spec) && spec.MaxExports > mostImages {
		return fmt.Errorf("spec.maxExports: %d is not allowed with the engine image, for which a node has %d loop devices: give at most that, or make more servers", spec.MaxExports, mostImages)
	}
	if len(spec.Resources.Claims) > 0 {
		return fmt.Errorf("spec.resources.claims: %.80q is not allowed: set requests and limits", spec.Resources.Claims[0].Name)
	}
	if err := checkStorage(spec.Storage); err != nil {
		return err
	}
	return checkAlone(s, others)
}

// longestPrefix is the longest IPv6 prefix that NFS-Ganesha parses: two digits.
const longestPrefix = 99

// checkClient refuses clients that NFS-Ganesha does not accept: its pod would fail at every start.
func checkClient(c string) error {
	network, notNetwork := netip.ParsePrefix(c)
	if address, err := netip.ParseAddr(c); err == nil && address.Zone() == "" {
		network, notNetwork = netip.PrefixFrom(address, address.BitLen()), nil
	}
	switch {
	case notNetwork != nil:
		return errors.New("is neither an address such as 10.0.0.7 nor a network such as 10.0.0.0/8")
	case network.Addr().Is4In6():
		return errors.New("is of IPv4, written as one of IPv6: write it as one of IPv4")
	case network.Bits() > longestPrefix && !network.IsSingleIP():
		return fmt.Errorf("has a prefix of %d bits, and networks of IPv6 may have up to %d: name a larger network, or its addresses", network.Bits(), longestPrefix)
	}
	return nil
}

func checkStorage(s *v1beta1.NFSStorage) error {
	if s == nil {
		return nil
	}
	given := 0
	for _, is := range []bool{s.Size != nil, s.ClaimName != "", s.HostPath != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("spec.storage: %d of size, claimName and hostPath are given: give one", given)
	}
	return nil
}

// checkAlone refuses storage that another server uses: both would overwrite each other, or one would expose the other's
// data.
func checkAlone(s *v1beta1.NFSServer, others []*v1beta1.NFSServer) error {
	name := claimName(s)
	for _, o := range others {
		switch {
		case name == "" || o.UID == s.UID || claimName(o) != name:
		case s.Spec.Publish != nil && o.Spec.Publish != nil: // both only read
		case s.Spec.Publish != nil:
			return fmt.Errorf("spec.publish.claimName: claim %s is the storage of NFSServer %s: publish another one", name, o.Name)
		case o.Spec.Publish == nil && v1beta1.ByAge(o, s) < 0:
			return fmt.Errorf("spec.storage: claim %s is the storage of NFSServer %s: two servers cannot share one", name, o.Name)
		}
	}
	return nil
}
