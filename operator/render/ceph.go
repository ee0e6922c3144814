package render

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

const (
	// cephConfigKey is the key, in the ConfigMap of the nodes, of the pools in Ceph clusters as they were carried out.
	cephConfigKey = "ceph.json"
	// cephConfigHash is the annotation of the DaemonSet that changes with them.
	cephConfigHash = "holdfast.dev/ceph-config-hash"

	// cephRights is the name of the roles of all pools and of their bindings; those of one pool are named after it, too.
	cephRights = name + "-ceph"
	// cephPolicy limits the accounts of pools.
	cephPolicy = "holdfast-ceph-account"
	// cephKeys is the directory of the node pod that has the key of each user of each Ceph cluster, as FSID.USER.
	cephKeys = "/etc/holdfast/ceph"
	// nodeKey is the volume of a pool's pod with the key of the user that all nodes have.
	nodeKey = "node-key"
)

// CephObjectName is the name of the Deployment and of the account of a pool in a Ceph cluster.
func CephObjectName(pool string) string { return cephRights + "-" + pool }

// cephSites are the pools in Ceph clusters that are served.
func cephSites(spec *v1beta1.StorageClusterSpec) []v1beta1.PoolSpec {
	if !WithCSI(spec) {
		return nil
	}
	return v1beta1.CephPools(spec.Pools)
}

// ceph returns what serves the pools in Ceph clusters.
func (p *plan) ceph() []object {
	pools := cephSites(&p.spec)
	if len(pools) == 0 {
		return nil
	}
	objects := p.cephRights(pools)
	for _, pool := range pools {
		account := Manifest[core.ServiceAccount](deploy.Ceph, cephRights)
		account.Name = CephObjectName(pool.Name)
		account.Labels = map[string]string{v1beta1.ComponentLabel: v1beta1.CephComponent}
		objects = append(objects, account, p.cephSite(pool))
	}
	return objects
}

// cephRights are the roles of all pools and their bindings.
func (p *plan) cephRights(pools []v1beta1.PoolSpec) []object {
	clusterRole, clusterBinding, role, binding := &rbac.ClusterRole{}, &rbac.ClusterRoleBinding{}, &rbac.Role{}, &rbac.RoleBinding{}
	Read(deploy.Ceph, cephRights, clusterRole, clusterBinding, role, binding)
	leases := &role.Rules[len(role.Rules)-1].ResourceNames
	for _, pool := range pools {
		account := rbac.Subject{Kind: rbac.ServiceAccountKind, Namespace: p.Namespace, Name: CephObjectName(pool.Name)}
		clusterBinding.Subjects, binding.Subjects = append(clusterBinding.Subjects, account), append(binding.Subjects, account)
		*leases = append(*leases, v1beta1.LeasePrefix+v1beta1.NodeOfCephPool(pool.Name), v1beta1.LeaseOfCephPool(pool.Name))
	}
	objects := []object{clusterRole, clusterBinding, role, binding}
	for _, o := range objects {
		o.SetLabels(map[string]string{v1beta1.ComponentLabel: v1beta1.CephComponent})
	}
	return objects
}

// cephSite is the workload of one pool.
func (p *plan) cephSite(pool v1beta1.PoolSpec) *apps.Deployment {
	d := Manifest[apps.Deployment](deploy.Ceph, cephRights)
	labels := map[string]string{v1beta1.NameLabel: name, v1beta1.ComponentLabel: v1beta1.CephComponent, v1beta1.CephPoolLabel: pool.Name}
	d.Name, d.Labels = CephObjectName(pool.Name), labels
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	pod := &d.Spec.Template.Spec
	pod.ServiceAccountName = d.Name
	main := container(pod, name)
	main.Image = string(p.images.Ceph)
	main.Args = append(main.Args, cephArguments(pool)...)
	for i, v := range pod.Volumes {
		switch v.Name {
		case "key":
			pod.Volumes[i].Secret.SecretName = pool.Ceph.SecretRef.Name
		case nodeKey:
			pod.Volumes[i].Secret.SecretName = pool.Ceph.NodeSecretRef.Name
		}
	}
	if pool.Ceph.HasNodeUsers() {
		main.Args = slices.DeleteFunc(main.Args, func(arg string) bool { return strings.HasPrefix(arg, "--node-key-file=") })
		main.VolumeMounts = slices.DeleteFunc(main.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == nodeKey })
		pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == nodeKey })
	}
	p.applyPodSettings(pod)
	return d
}

// cephArguments say which pool a process serves. Their order is fixed: another one would replace the pod.
func cephArguments(pool v1beta1.PoolSpec) []string {
	c := pool.Ceph
	reserved, _ := pool.ReservedRoom() // it was checked
	args := []string{
		"--pool=" + pool.Name,
		"--engine=" + strings.ToLower(string(pool.Engine)),
		"--fsid=" + c.FSID,
		"--monitors=" + strings.Join(c.Monitors, ","),
		"--user=" + c.UserName(),
		"--node-user=" + userOfNodes(pool),
	}
	for _, optional := range [][2]string{
		{"ceph-pool", c.Pool},
		{"ceph-filesystem", c.Filesystem},
		{"ceph-namespace", c.Namespace},
		{"ceph-data-pool", c.DataPool},
		{"overcommit", pool.Overcommit},
		{"reserved", reserved},
	} {
		if optional[1] != "" {
			args = append(args, "--"+optional[0]+"="+optional[1])
		}
	}
	if pool.TrashRetention != nil {
		retention, _ := pool.TrashRetention.Or(0) // it was checked
		args = append(args, "--trash-retention="+retention.String())
	}
	if c.Secure {
		args = append(args, "--secure")
	}
	return args
}

// mountCephKeys gives the node pod the keys of the users as whom nodes mount volumes, and no others. A key that is changed
// in its secret is changed in the pod. One that is missing keeps no pod from its start.
func (p *plan) mountCephKeys(pod *core.PodSpec) {
	sources, has, engines := []core.VolumeProjection{}, map[string]bool{}, []string{}
	for _, pool := range v1beta1.CephPools(p.pools) {
		engines = append(engines, strings.ToLower(string(pool.Engine)))
		file := nodeKeyFile(pool.Ceph)
		if has[file] || pool.Ceph.HasNodeUsers() { // several pools of one cluster; or nodes get their keys from the pool
			continue
		}
		has[file] = true
		sources = append(sources, core.VolumeProjection{Secret: &core.SecretProjection{
			LocalObjectReference: core.LocalObjectReference{Name: pool.Ceph.NodeSecretRef.Name},
			Items:                []core.KeyToPath{{Key: v1beta1.CephKeyName, Path: file}},
			Optional:             new(true),
		}})
	}
	if len(engines) == 0 {
		return
	}
	main := container(pod, name)
	if len(sources) > 0 {
		const volume = "ceph-keys"
		pod.Volumes = append(pod.Volumes, core.Volume{Name: volume, VolumeSource: core.VolumeSource{
			Projected: &core.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o400))},
		}})
		main.Args = append(main.Args, "--ceph-keys="+cephKeys)
		main.VolumeMounts = append(main.VolumeMounts, core.VolumeMount{Name: volume, MountPath: cephKeys, ReadOnly: true})
	}
	slices.Sort(engines)
	main.Args = append(main.Args, "--ceph-engines="+strings.Join(slices.Compact(engines), ","))
	if slices.Contains(engines, "rbd") {
		mountSysfs(pod, main)
	}
}

// mountSysfs gives a container the sysfs of the host: with a read-only root the one that it has is read-only too, and the
// kernel maps images through files there.
func mountSysfs(pod *core.PodSpec, c *core.Container) {
	const volume = "sys"
	pod.Volumes = append(pod.Volumes, core.Volume{Name: volume, VolumeSource: core.VolumeSource{
		HostPath: &core.HostPathVolumeSource{Path: "/sys", Type: new(core.HostPathDirectory)},
	}})
	c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: volume, MountPath: "/sys"})
}

// userOfNodes is as whom nodes use the volumes of a pool. Where each has a user of its own it ends with a point, and begins the
// names of all.
func userOfNodes(pool v1beta1.PoolSpec) string {
	if pool.Ceph.HasNodeUsers() {
		return pool.Ceph.NodeUserName() + "." + pool.Name + "."
	}
	return pool.Ceph.NodeUserName()
}

// nodeKeyFile is where below cephKeys a node finds the key by which it reaches a volume: what it knows of that is the cluster
// and the user.
func nodeKeyFile(c *v1beta1.CephSpec) string { return c.FSID + "." + c.NodeUserName() }

// cephPolicies keep the account of each pool to what is its own.
func (p *plan) cephPolicies() []object {
	pools := cephSites(&p.spec)
	if len(pools) == 0 || !HasPolicies(p.Has) {
		return nil
	}
	places := map[string]v1beta1.PoolSpec{}
	for _, pool := range pools {
		places[pool.Name] = pool
	}
	all := Policies(deploy.CephPolicies, p.Namespace)
	SetVariable(all, cephPolicy, "places", celMap(places, celPlace))
	return objectsOf(all)
}

// celPlace is where a pool is and how nodes reach it, as the policy compares it: engine, cluster, pool or file system,
// namespace or directory, user, monitors, whether all is encrypted.
func celPlace(pool v1beta1.PoolSpec) string {
	c, quoted, within := pool.Ceph, []string{}, pool.Ceph.Namespace
	if pool.Engine == v1beta1.EngineCephFS {
		within = c.Directory()
	}
	for _, word := range []string{
		string(pool.Engine), c.FSID, cmp.Or(c.Filesystem, c.Pool), within, userOfNodes(pool), strings.Join(c.Monitors, ","), strconv.FormatBool(c.Secure),
	} {
		quoted = append(quoted, strconv.Quote(word))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// CephSecrets are the secrets that the pools of a StorageCluster name, sorted.
func CephSecrets(c *v1beta1.StorageCluster) (names []string) {
	for _, pool := range v1beta1.CephPools(c.Spec.Pools) {
		names = append(names, pool.Ceph.SecretRef.Name)
		if !pool.Ceph.HasNodeUsers() {
			names = append(names, pool.Ceph.NodeSecretRef.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
