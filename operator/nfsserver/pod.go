package nfsserver

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// LoopSet is the resource by which a pod that is not privileged gets loop devices from its node, and how many exports of
// images a set is for. A node has 16 sets at most.
const (
	LoopSet    core.ResourceName = "holdfast.dev/loop-set"
	perLoopSet                   = 256
	mostImages                   = 16 * perLoopSet
)

const (
	managedBy = apply.ManagedByLabel

	dataVolume      = "data"
	publishedVolume = "published"
	publishedMount  = "/published"
	imageEngine     = "image"
)

// pod completes what the manifest has.
func (in *input) pod(pod *core.PodSpec) {
	s, c := &in.server.Spec, &pod.Containers[0]
	pod.ImagePullSecrets = in.cluster.Spec.ImagePullSecrets
	pod.PriorityClassName = cmp.Or(in.cluster.Spec.PriorityClass, pod.PriorityClassName)
	pod.Tolerations = append(pod.Tolerations, s.Tolerations...)
	pod.Affinity = in.affinity()
	c.Image = in.serverImage()
	c.Args = append(c.Args, in.arguments()...)
	if len(s.Exports.Clients) == 0 && in.closing.on {
		c.Env = append(c.Env, core.EnvVar{Name: clientsVariable, Value: clientsOfStatus})
	}
	if s.Resources.Requests != nil || s.Resources.Limits != nil {
		c.Resources = *s.Resources.DeepCopy()
	}
	if _, given := c.Resources.Limits[LoopSet]; !given && servesImages(s) {
		if c.Resources.Limits == nil {
			c.Resources.Limits = core.ResourceList{}
		}
		c.Resources.Limits[LoopSet] = *resource.NewQuantity(loopSets(s), resource.DecimalSI)
	}
	in.storage(pod)
}

func servesImages(s *v1.NFSServerSpec) bool { return s.Publish == nil && engine(s) == imageEngine }

// loopSets is how many sets the exports of a server take, each of which is an image.
func loopSets(s *v1.NFSServerSpec) int64 {
	return max(1, (int64(s.MaxExports)+perLoopSet-1)/perLoopSet)
}

func engine(s *v1.NFSServerSpec) string { return cmp.Or(s.Engine, imageEngine) }

// storage is what is mounted at /data, and what is published.
func (in *input) storage(pod *core.PodSpec) {
	s := &in.server.Spec
	data := core.Volume{Name: dataVolume}
	claim := &core.PersistentVolumeClaimVolumeSource{ClaimName: claimName(in.server)}
	switch {
	case s.Publish != nil:
		data.EmptyDir = &core.EmptyDirVolumeSource{} // nothing needs to be remembered of what nobody writes
		pod.Volumes = append(pod.Volumes, core.Volume{Name: publishedVolume, VolumeSource: core.VolumeSource{PersistentVolumeClaim: claim}})
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: publishedVolume, MountPath: publishedMount, ReadOnly: true})
	case s.Storage.HostPath != "":
		data.HostPath = &core.HostPathVolumeSource{Path: s.Storage.HostPath, Type: new(core.HostPathDirectoryOrCreate)}
	default:
		data.PersistentVolumeClaim = claim
	}
	pod.Volumes = append(pod.Volumes, data)
}

// affinity leaves the choice to the terms. One node, where there is one to stay on, must match them as well.
func (in *input) affinity() *core.Affinity {
	terms := in.server.Spec.NodeSelectorTerms
	if in.node != "" {
		only := core.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: []string{in.node}}
		terms = slices.Clone(terms)
		for i := range terms {
			terms[i].MatchFields = append(slices.Clone(terms[i].MatchFields), only)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &core.Affinity{NodeAffinity: &core.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// arguments are those that differ from server to server. What is not said is left to the program.
func (in *input) arguments() (args []string) {
	s := &in.server.Spec
	add := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	add("server", in.server.Namespace+"/"+in.server.Name)
	add("namespace", in.namespace)
	add("address", cmp.Or(s.Service.ClusterIP, in.address))
	if s.Publish != nil {
		add("publish", publishedMount)
		add("publish-name", path(s))
		add("uid", string(in.server.UID))
	} else {
		add("engine", engine(s))
		add("mount-options", strings.Join(s.MountOptions, ","))
		add("max-exports", number(int64(s.MaxExports)))
	}
	add("access", string(s.Access()))
	add("squash", s.Exports.Squash)
	add("anon-uid", numberIf(s.Exports.AnonUID))
	add("anon-gid", numberIf(s.Exports.AnonGID))
	add("clients", strings.Join(s.Exports.Clients, ","))
	if grace, err := s.GracePeriod.Or(0); err == nil && grace > 0 { // check refuses the others
		add("grace-period", grace.String())
	}
	return args
}

// path is the name under which a published claim is mounted.
func path(s *v1.NFSServerSpec) string { return cmp.Or(s.Publish.Name, s.Publish.ClaimName) }

// number is empty for 0, which is what is not said.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func numberIf(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
