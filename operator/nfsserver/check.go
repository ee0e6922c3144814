package nfsserver

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// The longest name, with which that of the pod's revision is still a label, and the bounds of the grace period of NFS.
const (
	longestName   = 48
	shortestGrace = time.Second
	longestGrace  = 180 * time.Second
)

// check refuses what cannot be made, or must not be, before anything is made. The API server has refused most of it; an
// object may be of a time when the kind was another. others are all servers of the namespace.
func check(s *v1.NFSServer, others []*v1.NFSServer) error {
	spec := &s.Spec
	if wrong := validation.IsDNS1123Label(s.Name); len(wrong) > 0 || len(s.Name) > longestName {
		return fmt.Errorf("metadata.name: %.80q cannot name a server: at most %d letters, digits and - are allowed", s.Name, longestName)
	}
	if (spec.Storage == nil) == (spec.Publish == nil) {
		return fmt.Errorf("spec.storage: give it, or spec.publish with a claim that exists, and not both")
	}
	if spec.Publish != nil && spec.Access() == v1.NFSReadWrite {
		return fmt.Errorf("spec.exports.access: %s is not allowed with spec.publish: what is published is read only", spec.Access())
	}
	if g := spec.GracePeriod; g != nil && (g.Duration < shortestGrace || g.Duration > longestGrace) {
		return fmt.Errorf("spec.gracePeriod: %s is not allowed: it must be %s to %s", g.Duration, shortestGrace, longestGrace)
	}
	for i, c := range spec.Exports.Clients {
		_, notAddress := netip.ParseAddr(c)
		if _, notNetwork := netip.ParsePrefix(c); notAddress != nil && notNetwork != nil {
			return fmt.Errorf("spec.exports.clients[%d]: %.80q is neither an address such as 10.0.0.7 nor a network such as 10.0.0.0/8", i, c)
		}
	}
	if len(spec.Resources.Claims) > 0 {
		return fmt.Errorf("spec.resources.claims: %.80q is not allowed: set requests and limits", spec.Resources.Claims[0].Name)
	}
	if err := checkStorage(spec.Storage); err != nil {
		return err
	}
	return checkAlone(s, others)
}

func checkStorage(s *v1.NFSStorage) error {
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

// checkAlone refuses storage that another server has: both would write over each other, or one would show what is the
// other's.
func checkAlone(s *v1.NFSServer, others []*v1.NFSServer) error {
	name := claimName(s)
	for _, o := range others {
		switch {
		case name == "" || o.UID == s.UID || claimName(o) != name:
		case s.Spec.Publish != nil && o.Spec.Publish != nil: // both only read
		case s.Spec.Publish != nil:
			return fmt.Errorf("spec.publish.claimName: claim %s is the storage of NFSServer %s: publish another one", name, o.Name)
		case o.Spec.Publish == nil && comesBefore(o, s):
			return fmt.Errorf("spec.storage: claim %s is the storage of NFSServer %s: two servers cannot share one", name, o.Name)
		}
	}
	return nil
}

func comesBefore(a, b *v1.NFSServer) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), compare(a.Name, b.Name)) < 0
}
