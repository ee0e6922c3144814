package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// image is on every node; nothing is ever pulled.
const image = "busybox:1"

// user is who pods run as, and the group that their file systems belong to.
const user = 1000

// PodOption changes a pod before it is made.
type PodOption func(*corev1.Pod)

// Script is what a pod does instead of idling. A command that fails ends it.
func Script(script string) PodOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-ec", script} }
}

// Env sets a variable.
func Env(name, value string) PodOption {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

// Mount gives a pod the file system of a claim.
func Mount(claim, path string) PodOption {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: addVolume(p, claim), MountPath: path})
	}
}

// Device gives a pod the device of a claim, and makes it run as root: a device is root's.
func Device(claim, path string) PodOption {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: addVolume(p, claim), DevicePath: path})
		AsRoot(p)
	}
}

func addVolume(p *corev1.Pod, claim string) string {
	return addSource(p, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

func addSource(p *corev1.Pod, source corev1.VolumeSource) string {
	name := fmt.Sprintf("volume-%d", len(p.Spec.Volumes))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	return name
}

// Inline gives a pod a volume of its own that is no claim.
func Inline(path string, attributes map[string]string) PodOption {
	return func(p *corev1.Pod) {
		name := addSource(p, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.holdfast.dev", VolumeAttributes: attributes}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
	}
}

// MountNFS gives a pod a directory of an NFS server, without a claim.
func MountNFS(server, directory, path string) PodOption {
	return func(p *corev1.Pod) {
		c, source := &p.Spec.Containers[0], &corev1.NFSVolumeSource{Server: server, Path: directory}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: addSource(p, corev1.VolumeSource{NFS: source}), MountPath: path})
	}
}

// OnNode leaves the scheduler one node.
func OnNode(node string) PodOption {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// AnyNode leaves the scheduler all nodes.
func AnyNode(p *corev1.Pod) { p.Spec.NodeSelector = nil }

// Preferring is for a pod that the scheduler puts on a node if nothing forbids it.
func Preferring(node string) PodOption {
	return func(p *corev1.Pod) {
		p.Spec.NodeSelector = nil
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}},
		}}
	}
}

// TolerateAll lets a pod onto a node, and stay there, whatever the node's taints are.
func TolerateAll(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// Label is for services to find a pod.
func Label(key, value string) PodOption {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

// Once lets a pod succeed or fail; otherwise it is started again and again.
func Once(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

// AsRoot makes a pod run as root, still without capabilities.
func AsRoot(p *corev1.Pod) {
	p.Spec.SecurityContext.RunAsNonRoot, p.Spec.SecurityContext.RunAsUser = nil, nil
}

// AllowPrivileged lets the pods of the namespace do all that they ask for.
func (s *Space) AllowPrivileged() {
	s.t.Helper()
	label := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
	check.Got(s.Client.CoreV1().Namespaces().Patch(s.t.Context(), s.Namespace, types.MergePatchType, label, metav1.PatchOptions{}))(s.t)
}

// Capable gives a pod a capability, where the namespace lets it.
func Capable(of corev1.Capability) PodOption {
	return func(p *corev1.Pod) {
		c := p.Spec.Containers[0].SecurityContext.Capabilities
		c.Add = append(c.Add, of)
	}
}

// LoopSet gives a pod a set of loop devices, where the namespace is allowed them.
func LoopSet(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"holdfast.dev/loop-set": resource.MustParse("1")}
}

// NewPod tolerates that a node is cordoned, as another test may have done for its own sake.
func NewPod(name, node string, options ...PodOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			Tolerations:                   []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: new(int64(1)), // a shell that is process 1 ignores the wish to end
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				RunAsUser:      new(int64(user)),
				FSGroup:        new(int64(user)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"sleep", "infinity"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(bool),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

// Pod makes a pod of one container that idles at the home node, unless options say otherwise, and does not wait for it.
func (s *Space) Pod(name string, options ...PodOption) *corev1.Pod {
	s.t.Helper()
	pod := NewPod(name, s.Home, options...)
	return check.Got(s.Client.CoreV1().Pods(s.Namespace).Create(s.t.Context(), pod, metav1.CreateOptions{}))(s.t)
}

// Ready waits until a pod runs and passes its probes.
func (s *Space) Ready(name string) *corev1.Pod {
	s.t.Helper()
	return AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), name, "to be ready", func(p *corev1.Pod) (bool, error) {
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			return false, fmt.Errorf("it has ended: %s", p.Status.Phase)
		}
		return podstatus.Has(p, corev1.PodReady, corev1.ConditionTrue), nil
	})
}

// Run makes a pod that does its script once, and returns what it printed.
func (s *Space) Run(name string, options ...PodOption) string {
	s.t.Helper()
	s.Pod(name, append(options, Once)...)
	return s.Result(name)
}

// Result waits until a pod that runs once has succeeded, and returns what it printed.
func (s *Space) Result(name string) string {
	s.t.Helper()
	s.Succeeded(name)
	return s.Log(name)
}

// Succeeded waits until a pod that runs once has succeeded.
func (s *Space) Succeeded(name string) *corev1.Pod {
	s.t.Helper()
	return AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), name, "to succeed", func(p *corev1.Pod) (bool, error) {
		if p.Status.Phase == corev1.PodFailed {
			return false, fmt.Errorf("it has failed and printed %q", s.Log(name))
		}
		return p.Status.Phase == corev1.PodSucceeded, nil
	})
}

// DeletePod ends a pod and waits until it is gone, and its mounts with it.
func (s *Space) DeletePod(name string) {
	s.t.Helper()
	pods := s.Client.CoreV1().Pods(s.Namespace)
	check.OK(s.t, pods.Delete(s.t.Context(), name, metav1.DeleteOptions{}))
	AwaitNone(s, pods, Named(name), "pod "+name)
}

// ForgetPod removes a pod without waiting for its node to say that it has ended: the node cannot.
func (s *Space) ForgetPod(name string) {
	s.t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	check.OK(s.t, s.Client.CoreV1().Pods(s.Namespace).Delete(s.t.Context(), name, now))
}
