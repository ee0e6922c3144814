package nfsserver

import (
	"fmt"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// checkServer refuses what neither the schema nor the API server refuses of a server. others are all servers of the namespace.
func checkServer(s *v1beta1.NFSServer, others []*v1beta1.NFSServer) error {
	for i, o := range s.Spec.MountOptions {
		if err := v1beta1.CheckNFSOption(o); err != nil {
			return fmt.Errorf("spec.mountOptions[%d]: %w", i, err)
		}
	}
	if claims := s.Spec.Resources.Claims; len(claims) > 0 {
		return fmt.Errorf("spec.resources.claims: %.80q is not allowed: set requests and limits", claims[0].Name)
	}
	return checkAlone(s, others)
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
