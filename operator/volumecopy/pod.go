package volumecopy

import (
	"cmp"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const containerName = "copy"

// capabilities are what keeps owners, modes, devices and attributes of files, and reads those of all users. Without SYS_ADMIN
// the attributes of the namespace trusted, such as those of an overlay, would not be seen, and be lost. A device needs none.
var capabilities = []core.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP", "SYS_ADMIN"}

func labelsOf(t *v1beta1.Volume) map[string]string {
	return map[string]string{
		v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: "volume-copy",
		v1beta1.CopyLabel: t.Name,
	}
}

// persistentOf is the PersistentVolume of a role, as csi-provisioner makes it.
func persistentOf(namespace string, t, v *v1beta1.Volume, r role) (*core.PersistentVolume, error) {
	name := nameOf(t.UID, r)
	pv, err := persistent.Of(v, persistent.Options{
		Name: name, Claim: core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name},
	})
	if err != nil {
		return nil, err
	}
	pv.Labels = labelsOf(t)
	if r == target && pv.Spec.CSI != nil {
		pv.Spec.CSI.VolumeAttributes = map[string]string{v1beta1.PopulatesAttribute: "true"}
	}
	return pv, nil
}

// claimOf is the claim that is bound to it.
func claimOf(t *v1beta1.Volume, pv *core.PersistentVolume) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Name, Labels: labelsOf(t)},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode, VolumeName: pv.Name, StorageClassName: new(""),
			Resources: core.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		},
	}
}

// podOf is the pod of an attempt. Kubernetes finds a node that reaches both volumes. The source is read-only for the container
// alone: where the node mounts it, the kernel replays its log, which that of a volume in use has.
func podOf(namespace string, t, from *v1beta1.Volume, attempt int32, image v1beta1.Image) *core.Pod {
	no, yes, root := false, true, int64(0)
	labels := labelsOf(t)
	labels[v1beta1.FencedLabel] = "true" // a lost node does not keep it
	c := core.Container{
		Name: containerName, Image: string(image), ImagePullPolicy: core.PullIfNotPresent,
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError,
		Resources: core.ResourceRequirements{
			Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("50m"), core.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   core.ResourceList{core.ResourceCPU: resource.MustParse("1"), core.ResourceMemory: resource.MustParse("256Mi")},
		},
		SecurityContext: &core.SecurityContext{
			RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities:   &core.Capabilities{Drop: []core.Capability{"ALL"}},
			SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault},
		},
	}
	if cmp.Or(t.Status.Mode, t.Spec.Mode) == v1beta1.ModeBlock {
		c.Args = []string{"copy", "--from", "/dev/from", "--to", "/dev/to"}
		c.SecurityContext.AllowPrivilegeEscalation = &no
		c.VolumeDevices = []core.VolumeDevice{{Name: string(source), DevicePath: "/dev/from"}, {Name: string(target), DevicePath: "/dev/to"}}
	} else {
		c.Args = []string{"copy", "--from", "/from", "--to", "/to"}
		c.SecurityContext.Capabilities.Add = capabilities
		c.VolumeMounts = []core.VolumeMount{{Name: string(source), MountPath: "/from", ReadOnly: true}, {Name: string(target), MountPath: "/to"}}
	}
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: podName(t.UID, attempt), Labels: labels,
			// kubectl drain refuses a node with a pod that has no controller.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Volume", Name: t.Name, UID: t.UID, Controller: &yes,
			}},
		},
		Spec: core.PodSpec{
			Containers: []core.Container{c}, RestartPolicy: core.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		},
	}
	for _, r := range roles {
		pod.Spec.Volumes = append(pod.Spec.Volumes, core.Volume{Name: string(r), VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: nameOf(t.UID, r), ReadOnly: r == source},
		}})
	}
	if !v1beta1.IsSite(t.Spec.Node) || !v1beta1.IsSite(from.Spec.Node) { // no other node has that volume
		pod.Spec.Tolerations = []core.Toleration{{Operator: core.TolerationOpExists, Effect: core.TaintEffectNoSchedule}}
	}
	return pod
}
