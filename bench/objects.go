package bench

import (
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedBy is the value of the label app.kubernetes.io/managed-by of the namespaces of all runs, by which those of
// killed runs can be found.
const ManagedBy = "holdfast-bench"

// user is the user id of pods, and the group of their volumes.
const user = 1000

func namespace() *core.Namespace {
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "holdfast-bench-",
		Labels: map[string]string{
			"app.kubernetes.io/managed-by":       ManagedBy,
			"pod-security.kubernetes.io/enforce": "restricted",
		},
	}}
}

func (b *Bench) claim(name string) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			StorageClassName: &b.StorageClass,
			Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: b.Size}},
		},
	}
}

const container = "idle"

// idle waits for SIGTERM and exits at once: process 1 ignores every signal that it does not handle.
const idle = `trap "exit 0" TERM; sleep 1000000 & wait`

func (b *Bench) pod(p plan) *core.Pod {
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.pod},
		Spec: core.PodSpec{
			RestartPolicy:                 core.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			SecurityContext: &core.PodSecurityContext{
				RunAsNonRoot:   new(true),
				RunAsUser:      new(int64(user)),
				FSGroup:        new(int64(user)),
				SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []core.Container{{
				Name:            container,
				Image:           b.Image,
				ImagePullPolicy: core.PullIfNotPresent,
				Command:         []string{"sh", "-c", idle},
				SecurityContext: &core.SecurityContext{
					AllowPrivilegeEscalation: new(bool),
					Capabilities:             &core.Capabilities{Drop: []core.Capability{"ALL"}},
				},
			}},
		},
	}
	if p.claim != "" {
		pod.Spec.Volumes = []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: p.claim},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []core.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	if p.node != "" {
		pod.Spec.Affinity = &core.Affinity{NodeAffinity: onNode(p.node)}
	}
	return pod
}

// onNode is an affinity for one node by its name, which the label kubernetes.io/hostname may not equal.
func onNode(node string) *core.NodeAffinity {
	return &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
		NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}
}
