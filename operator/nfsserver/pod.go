package nfsserver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// perLoopSet is how many exports of images a set of loop devices is for. A node has 16 sets at most.
const perLoopSet = 256

const (
	dataVolume      = "data"
	publishedVolume = "published"
	publishedMount  = "/published"
)

func workload(in input) *unstructured.Unstructured {
	set := render.Manifest[apps.StatefulSet](deploy.NFS, manifestName)
	set.Spec.ServiceName = objectName(in.server)
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(in.server)}
	set.Spec.Template.Labels = labelsOf(in.server)
	delete(set.Spec.Template.Labels, apply.ManagedByLabel) // the StatefulSet manages the pod
	set.Spec.Template.Labels[v1beta1.FencedLabel] = "true" // it serves from its storage alone, and may move where that can
	if in.renewed != "" {
		metav1.SetMetaDataAnnotation(&set.Spec.Template.ObjectMeta, accountAnnotation, in.renewed)
	}
	in.pod(&set.Spec.Template.Spec)
	return belonging(set, in.server)
}

// pod completes the pod of the manifest.
func (in *input) pod(pod *core.PodSpec) {
	s, c := &in.server.Spec, &pod.Containers[0]
	pod.ImagePullSecrets = in.cluster.Spec.ImagePullSecrets
	render.SetPullPolicy(pod, in.cluster.Spec.ImagePullPolicy)
	pod.PriorityClassName = cmp.Or(in.cluster.Spec.PriorityClassName, pod.PriorityClassName)
	pod.Tolerations = append(pod.Tolerations, s.Tolerations...)
	pod.Affinity = in.affinity()
	c.Image = string(cmp.Or(in.image, in.release.Images(in.cluster).NFS))
	c.Args = append(c.Args, in.arguments()...)
	c.Ports[0].ContainerPort = s.Port()
	if len(s.Exports.Clients) == 0 && in.closing.on {
		c.Env = append(c.Env, core.EnvVar{Name: clientsVariable, Value: clientsOfStatus})
	}
	if s.Resources.Requests != nil || s.Resources.Limits != nil {
		c.Resources = *s.Resources.DeepCopy()
	}
	if _, given := c.Resources.Limits[v1beta1.LoopSetResource]; !given && s.Publish == nil && engine(s) == v1beta1.EngineImage {
		if c.Resources.Limits == nil {
			c.Resources.Limits = core.ResourceList{}
		}
		sets := max(1, (int64(s.MaxExports)+perLoopSet-1)/perLoopSet)
		c.Resources.Limits[v1beta1.LoopSetResource] = *resource.NewQuantity(sets, resource.DecimalSI)
	}
	in.storage(pod)
}

func engine(s *v1beta1.NFSServerSpec) v1beta1.Engine {
	return cmp.Or(s.Engine, v1beta1.EngineImage)
}

// squashOptions maps to the values of the flag --squash, as in exports(5).
var squashOptions = map[v1beta1.NFSSquash]string{
	v1beta1.NFSSquashNone: "no_root_squash", v1beta1.NFSSquashRoot: "root_squash", v1beta1.NFSSquashAll: "all_squash",
}

// storage mounts the storage at /data, and the published directory.
func (in *input) storage(pod *core.PodSpec) {
	s := &in.server.Spec
	data := core.Volume{Name: dataVolume}
	claim := &core.PersistentVolumeClaimVolumeSource{ClaimName: claimName(in.server)}
	switch {
	case s.Publish != nil:
		data.EmptyDir = &core.EmptyDirVolumeSource{} // a read-only server has no state to keep
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

// affinity has the terms of the spec or, if the server must stay on one node, that node alone: it serves its data there
// also while a label is missing.
func (in *input) affinity() *core.Affinity {
	terms := in.server.Spec.NodeSelectorTerms
	if in.node != "" {
		terms = []core.NodeSelectorTerm{kube.OnNode(in.node)}
	}
	if len(terms) == 0 {
		return nil
	}
	return kube.NodeAffinity(terms...)
}

// arguments returns those that differ between servers. The program has defaults for unset fields.
func (in *input) arguments() (args []string) {
	s := &in.server.Spec
	add := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	add("server", in.server.Namespace+"/"+in.server.Name)
	add("namespace", in.holdfast)
	add("address", cmp.Or(s.Service.ClusterIP, in.address))
	add("port", number(int64(s.Service.Port)))
	if s.Publish != nil {
		add("publish", publishedMount)
		add("publish-name", path(s))
		add("uid", string(in.server.UID))
	} else {
		add("engine", strings.ToLower(string(engine(s))))
		add("mount-options", strings.Join(s.MountOptions, ","))
		add("max-exports", number(int64(s.MaxExports)))
	}
	add("access", string(s.Access()))
	add("squash", squashOptions[s.Exports.Squash])
	add("anon-uid", numberIf(s.Exports.AnonUID))
	add("anon-gid", numberIf(s.Exports.AnonGID))
	add("clients", strings.Join(s.Exports.Clients, ","))
	if grace, err := s.GracePeriod.Or(0); err == nil && grace > 0 { // check refuses the others
		add("grace-period", grace.String())
	}
	return args
}

// path is the name under which a published claim is mounted.
func path(s *v1beta1.NFSServerSpec) string { return cmp.Or(s.Publish.Name, s.Publish.ClaimName) }

// number is empty for 0, which means unset.
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

// node is where a server with a directory on a node must run, since its data is there; "" for others. It is chosen
// before the pod is created, which would otherwise be recreated to pin it. The server may leave the node when its terms
// no longer select it and it is empty.
func (r *round) node() string {
	if !hasDirectory(r.server) {
		return ""
	}
	has := r.server.Status.Node
	for _, p := range r.pods {
		has = cmp.Or(has, p.Spec.NodeName)
	}
	if has != "" && r.hasData() {
		return has
	}
	return chooseNode(r.server, has, r.nodes)
}

func hasDirectory(s *v1beta1.NFSServer) bool {
	return s.Spec.Storage != nil && s.Spec.Storage.HostPath != ""
}

// hasData says whether there may be something in the pool of a server, the trash included. Elsewhere the server would wait
// for this pool.
func (r *round) hasData() bool {
	if r.incomplete || r.volumes+r.snapshots > 0 {
		return true
	}
	if r.storage == nil { // it was deleted, and the server has not written it again
		return hasServed(&r.server.Status)
	}
	return slices.ContainsFunc(r.storage.Status.Pools, func(p v1beta1.Pool) bool { return !p.Promised.IsZero() })
}

// strayed says that a server stays on a node that its terms do not select; "" if they do.
func (r *round) strayed() string {
	has := r.node()
	i := slices.IndexFunc(r.nodes, func(n *core.Node) bool { return n.Name == has })
	if i < 0 {
		return ""
	}
	terms, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: r.server.Spec.NodeSelectorTerms})
	if err != nil || terms.Match(r.nodes[i]) {
		return ""
	}
	return fmt.Sprintf("spec.nodeSelectorTerms do not select node %s, where the data of this server is, so it stays there: "+
		"label the node or correct the terms; docs/nfs-servers.md says how to move the data", has)
}

// chooseNode keeps the node of a server while its terms select it. Otherwise it is the first by name that they select and
// where the pod could run now.
func chooseNode(s *v1beta1.NFSServer, has string, nodes []*core.Node) string {
	terms, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: s.Spec.NodeSelectorTerms})
	if err != nil {
		return has
	}
	there := slices.ContainsFunc(nodes, func(n *core.Node) bool { return n.Name == has })
	if has != "" && !there {
		return has // it may come back, and its data with it
	}
	var chosen []*core.Node
	for _, n := range nodes {
		switch {
		case !terms.Match(n):
		case n.Name == has:
			return has
		default:
			chosen = append(chosen, n)
		}
	}
	if len(chosen) == 0 {
		return ""
	}
	return slices.MinFunc(chosen, func(a, b *core.Node) int {
		_, barred := kube.Untolerated(a, s.Spec.Tolerations)
		if _, other := kube.Untolerated(b, s.Spec.Tolerations); barred != other {
			if other {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	}).Name
}
