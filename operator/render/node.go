package render

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

const (
	hostVolume = "holdfast" // the directory of Holdfast on the node
	// configKey is the key of the ConfigMap that the node reads.
	configKey = "node.json"
	// The keys with spec.debug and spec.traces, which the node reads again and again.
	debugKey, tracesKey = "debug", "traces"
	// configHash is the annotation of the node's pods that changes with their configuration.
	configHash = "holdfast.dev/config-hash"
)

// node returns the objects that run on storage nodes.
func (p *plan) node() []object {
	if !p.withCSI() {
		return nil
	}
	set, config := p.nodeSet(), configOf(v1beta1.NodePools(p.pools))
	metav1.SetMetaDataAnnotation(&set.Spec.Template.ObjectMeta, configHash, hashOf(config))
	data := map[string]string{configKey: config, debugKey: strconv.FormatBool(p.spec.Debug), tracesKey: p.spec.Traces}
	if sites := v1beta1.CephPools(p.pools); len(sites) > 0 {
		data[cephConfigKey] = configOf(sites)
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, cephConfigHash, hashOf(data[cephConfigKey])) // not on the pods, which do not read it
	}
	return append(p.nodeRights(), &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.NodeName, Labels: map[string]string{v1beta1.ComponentLabel: v1beta1.NodeComponent}},
		Data:       data,
	}, set)
}

func configOf(pools []v1beta1.PoolSpec) string {
	text, err := json.Marshal(v1beta1.NodeConfig{Pools: pools})
	if err != nil {
		panic(err) // they were read as JSON
	}
	return string(text)
}

func (p *plan) nodeSet() *apps.DaemonSet {
	set := Manifest[apps.DaemonSet](deploy.Node, v1beta1.NodeName)
	pod := &set.Spec.Template.Spec
	main := container(pod, name)
	main.Image = string(p.images.Holdfast)
	if most := p.spec.CSI.MaxVolumesPerNode; most > 0 {
		main.Args = append(main.Args, "--max-volumes-per-node="+strconv.FormatInt(most, 10))
	}
	main.Args = append(main.Args, p.inlineArguments()...)
	if p.images.CSINodeDriverRegistrar != "" || p.images.CSILivenessProbe != "" {
		p.nodeSidecars(pod)
		metav1.SetMetaDataAnnotation(&set.Spec.Template.ObjectMeta, defaultContainer, name)
	}
	p.moveKubeletDir(pod)
	p.mountPools(pod)
	p.mountCephKeys(pod)
	p.applyPodSettings(pod)
	applyOwnSettings(&set.Spec.Template, p.spec.Node)
	p.choose(pod)
	return set
}

// choose restricts a pod to the storage nodes.
func (p *plan) choose(pod *core.PodSpec) {
	if len(p.spec.NodeSelectorTerms) > 0 {
		pod.Affinity = &core.Affinity{NodeAffinity: &core.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{NodeSelectorTerms: p.spec.NodeSelectorTerms},
		}}
	}
}

const loopSetsName = "holdfast-loop-sets"

// loopSets returns the DaemonSet that allocates loop devices to NFS servers if there are no node pods.
func (p *plan) loopSets() []object {
	if p.withCSI() {
		return nil
	}
	set := Manifest[apps.DaemonSet](deploy.LoopSets, loopSetsName)
	pod := &set.Spec.Template.Spec
	lender := container(pod, name)
	lender.Image = string(p.images.Holdfast)
	if p.spec.Debug { // it does not read the StorageCluster
		lender.Args = append(lender.Args, "--log-level=debug")
	}
	p.moveKubeletDir(pod)
	p.applyPodSettings(pod)
	applyOwnSettings(&set.Spec.Template, p.spec.Node)
	p.choose(pod)
	objects := append(p.accountAndRights(deploy.LoopSets), p.privilegedOnOpenShift(loopSetsName, v1beta1.LoopSetsComponent)...)
	return append(objects, set)
}

// mountPools mounts the directories of the pools, and that of Holdfast if it is used. Disks that the agent mounts beneath
// it must be visible on the node.
func (p *plan) mountPools(pod *core.PodSpec) {
	main, used := container(pod, name), false
	for i, pool := range p.pools {
		switch {
		case pool.Ceph != nil:
			continue
		case pool.Devices != nil:
			used = true
			mountOf(main, hostVolume).MountPropagation = new(core.MountPropagationBidirectional)
		case within(pool.Path, hostDir):
			used = true
		default:
			volume := "pool-" + strconv.Itoa(i)
			pod.Volumes = append(pod.Volumes, core.Volume{Name: volume, VolumeSource: core.VolumeSource{
				HostPath: &core.HostPathVolumeSource{Path: pool.Path, Type: new(core.HostPathDirectoryOrCreate)},
			}})
			main.VolumeMounts = append(main.VolumeMounts, core.VolumeMount{Name: volume, MountPath: pool.Path})
		}
	}
	if !used {
		pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == hostVolume })
		main.VolumeMounts = slices.DeleteFunc(main.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == hostVolume })
	}
}

// mountOf returns where a container has a volume, which it must have.
func mountOf(c *core.Container, volume string) *core.VolumeMount {
	i := slices.IndexFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == volume })
	return &c.VolumeMounts[i]
}

// nodeSidecars adds the sidecars that have an image, in place of the driver's own implementation.
func (p *plan) nodeSidecars(pod *core.PodSpec) {
	template := Manifest[core.PodTemplate](deploy.Sidecars, v1beta1.NodeName)
	needed := map[string]bool{}
	add := func(c core.Container) {
		pod.Containers = append(pod.Containers, c)
		for _, mount := range c.VolumeMounts {
			needed[mount.Name] = true
		}
	}
	if image := p.images.CSINodeDriverRegistrar; image != "" {
		add(sidecar(template, "csi-node-driver-registrar", image))
		main := container(pod, name)
		main.Args = append(main.Args, "--register-driver=false")
	}
	if image := p.images.CSILivenessProbe; image != "" {
		c := sidecar(template, "livenessprobe", image)
		add(c)
		container(pod, name).LivenessProbe.HTTPGet = &core.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(c.Ports[0].ContainerPort)}
	}
	pod.Volumes = append(pod.Volumes, slices.DeleteFunc(template.Template.Spec.Volumes, func(v core.Volume) bool { return !needed[v.Name] })...)
}

// moveKubeletDir replaces the kubelet's directory of the manifests.
func (p *plan) moveKubeletDir(pod *core.PodSpec) {
	move := func(s *string) { *s = strings.Replace(*s, usualKubeletDir, p.kubeletDir, 1) }
	for i := range pod.Containers {
		c := &pod.Containers[i]
		for j := range c.Args {
			move(&c.Args[j])
		}
		for j := range c.VolumeMounts {
			move(&c.VolumeMounts[j].MountPath)
		}
	}
	for i := range pod.Volumes {
		if host := pod.Volumes[i].HostPath; host != nil {
			move(&host.Path)
		}
	}
}

// within says whether a directory is another or lies in it.
func within(dir, other string) bool {
	dir, other = path.Clean(dir), path.Clean(other)
	return dir == other || strings.HasPrefix(dir, strings.TrimSuffix(other, "/")+"/")
}
