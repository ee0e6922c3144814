package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// inlineProfile is the level of Pod Security that a namespace needs for inline ephemeral volumes of the driver, where the
// cluster asks for that, as OpenShift does.
const inlineProfile = "security.kubernetes.io/csi-ephemeral-volume-profile"

// announceInline adds the mode Ephemeral to the CSIDriver if inline volumes are allowed or still in use.
func (p *plan) announceInline(driver *storage.CSIDriver) {
	profile := "privileged"
	if p.spec.CSI.Ephemeral != nil {
		profile = "restricted" // their pools and size are limited, and they give no rights on a node
	}
	metav1.SetMetaDataLabel(&driver.ObjectMeta, inlineProfile, profile)
	if p.spec.CSI.Ephemeral != nil || p.KeepInline {
		driver.Spec.VolumeLifecycleModes = append(driver.Spec.VolumeLifecycleModes, storage.VolumeLifecycleEphemeral)
	}
}

// inlineArguments returns the arguments of a node's driver with what is allowed.
func (p *plan) inlineArguments() []string {
	allowed := p.spec.CSI.Ephemeral
	if allowed == nil {
		return nil
	}
	return []string{"--ephemeral-pools=" + strings.Join(allowed.Pools, ","), "--ephemeral-max-size=" + strconv.FormatInt(allowed.MaxSize.Value(), 10)}
}

func checkEphemeral(p *plan) error {
	allowed := p.spec.CSI.Ephemeral
	if allowed == nil {
		return nil
	}
	for i, pool := range allowed.Pools {
		if slices.ContainsFunc(v1beta1.CephPools(p.pools), func(c v1beta1.PoolSpec) bool { return c.Name == pool }) {
			return fmt.Errorf("spec.csi.ephemeral.pools[%d]: pool %s is in a Ceph cluster: inline ephemeral volumes are on the node of their pod; use a generic ephemeral volume, which is a claim", i, pool)
		}
		if pools := p.poolNames(); !slices.Contains(pools, pool) {
			return fmt.Errorf("spec.csi.ephemeral.pools[%d]: there is no pool %.80q: spec.pools has only %s", i, pool, strings.Join(pools, ", "))
		}
	}
	return nil
}
