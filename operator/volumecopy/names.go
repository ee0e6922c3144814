package volumecopy

import (
	"fmt"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// role is which of the two volumes of a copy something belongs to.
type role string

const (
	source role = "source"
	target role = "target"
)

var roles = []role{source, target}

// sourceName is the name of the temporary source, which is its ID too. Another Volume of the same name as the target has
// another UID, and so does not find what is left of the copy before.
func sourceName(uid types.UID) string { return "copy-" + strings.ToLower(string(uid)) }

// nameOf is that of the PersistentVolume and the claim of a role.
func nameOf(uid types.UID, r role) string { return fmt.Sprintf("holdfast-%s-%s", sourceName(uid), r) }

func podName(uid types.UID, attempt int32) string { return fmt.Sprint(podPrefix(uid), attempt) }

func podPrefix(uid types.UID) string { return "holdfast-" + sourceName(uid) + "-" }

// attemptOf is 0 for a pod that is not of the copy.
func attemptOf(uid types.UID, p *core.Pod) int32 {
	n, err := strconv.ParseInt(strings.TrimPrefix(p.Name, podPrefix(uid)), 10, 32)
	if err != nil || podName(uid, int32(n)) != p.Name {
		return 0
	}
	return int32(n)
}

// isTemporary says whether a Volume is the temporary source that its labels say. An object that another account has written
// does not lead to what belongs to a copy.
func isTemporary(v *v1beta1.Volume) bool {
	uid := types.UID(v.Spec.Labels[v1beta1.CopyUIDLabel])
	return uid != "" && v.Name == sourceName(uid)
}
