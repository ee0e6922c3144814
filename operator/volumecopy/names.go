package volumecopy

import (
	"crypto/hmac"
	"crypto/sha256"
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

// copyName begins all names of a copy. Another Volume of the same name as the target has another UID, and so does not find what
// is left of the copy before.
func copyName(uid types.UID) string { return "copy-" + strings.ToLower(string(uid)) }

// sourceName is the name of the temporary source, which is its ID too. Agents read the UID of the target, and may write objects:
// the end of the name, which only this process knows beforehand, keeps them from taking it.
func (r *Controller) sourceName(uid types.UID) string {
	end := hmac.New(sha256.New, r.key)
	end.Write([]byte(uid))
	return fmt.Sprintf("%s-%.5x", copyName(uid), end.Sum(nil))
}

// nameOf is that of the PersistentVolume and the claim of a role.
func nameOf(uid types.UID, r role) string { return fmt.Sprintf("holdfast-%s-%s", copyName(uid), r) }

func podName(uid types.UID, attempt int32) string { return fmt.Sprint(podPrefix(uid), attempt) }

func podPrefix(uid types.UID) string { return "holdfast-" + copyName(uid) + "-" }

// attemptOf is 0 for a pod that is not of the copy.
func attemptOf(uid types.UID, p *core.Pod) int32 {
	n, err := strconv.ParseInt(strings.TrimPrefix(p.Name, podPrefix(uid)), 10, 32)
	if err != nil || podName(uid, int32(n)) != p.Name {
		return 0
	}
	return int32(n)
}

// isTemporary says whether a Volume may be the temporary source that its labels say: what an agent has written may have them too.
func isTemporary(v *v1beta1.Volume) bool {
	uid := types.UID(v.Spec.Labels[v1beta1.CopyUIDLabel])
	return uid != "" && strings.HasPrefix(v.Name, copyName(uid))
}
