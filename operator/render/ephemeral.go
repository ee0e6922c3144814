package render

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inlineProfile is the level of Pod Security that a namespace needs for inline ephemeral volumes of the driver, where the
// cluster asks for that, as OpenShift does.
const inlineProfile = "security.kubernetes.io/csi-ephemeral-volume-profile"

// announceInline lets the kubelets know inline ephemeral volumes: those that are allowed, and those that are still there.
func (p *plan) announceInline(driver *storage.CSIDriver) {
	profile := "privileged"
	if p.spec.CSI.Ephemeral != nil {
		profile = "restricted" // what they may take is said, and they give no right to a node
	}
	metav1.SetMetaDataLabel(&driver.ObjectMeta, inlineProfile, profile)
	if p.spec.CSI.Ephemeral != nil || p.KeepInline {
		driver.Spec.VolumeLifecycleModes = append(driver.Spec.VolumeLifecycleModes, storage.VolumeLifecycleEphemeral)
	}
}

// inlineArguments are the arguments for the driver of a node that say what is allowed.
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
	if len(allowed.Pools) == 0 {
		return fmt.Errorf("spec.csi.ephemeral.pools: it is empty: name the pools that inline ephemeral volumes may be in, or leave spec.csi.ephemeral out")
	}
	for i, pool := range allowed.Pools {
		if pools := p.poolNames(); !slices.Contains(pools, pool) {
			return fmt.Errorf("spec.csi.ephemeral.pools[%d]: there is no pool %.80q: spec.pools has only %s", i, pool, strings.Join(pools, ", "))
		}
	}
	least, most := resource.MustParse("1Mi"), resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	if allowed.MaxSize.Cmp(least) < 0 || allowed.MaxSize.Cmp(*most) > 0 {
		return fmt.Errorf("spec.csi.ephemeral.maxSize: %s is not allowed: it must be 1Mi to %d bytes, such as 10Gi", allowed.MaxSize.String(), int64(math.MaxInt64))
	}
	return nil
}
