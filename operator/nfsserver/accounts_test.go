package nfsserver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// attacked is what the token of a server is tried on.
type attacked struct {
	*rig
	token       *rest.Config
	own, other  *v1beta1.NFSServer
	ownAddress  string
	elseAddress string
	claim       *core.PersistentVolumeClaim
}

// attack makes two servers and the token of the pod of the first, and waits until it is kept to its own.
func (r *rig) attack() *attacked {
	r.Helper()
	a := &attacked{rig: r, own: r.create("one", nil), other: r.create("two", nil)}
	wait.Until(r, "the pods", func() bool { return r.pod("one") != nil && r.pod("two") != nil })
	for name, to := range map[string]*string{"nfs-one": &a.ownAddress, "nfs-two": &a.elseAddress} {
		s := check.Got(r.theirs.CoreV1().Services(r.namespace).Get(r.Context(), name, metav1.GetOptions{}))(r)
		*to = s.Spec.ClusterIP
	}
	a.claim = a.makeClaim()
	for _, s := range []*v1beta1.NFSServer{a.own, a.other} {
		a.stored(s)
	}
	a.token = realapi.WithToken(r.T, r.config, r.namespace, rightsName, "nfs-one-0")
	wait.Until(r, "the address of the server being known", func() bool { return a.persistentVolume("create", nil).Try(r.Context(), a.token) == nil })
	wait.Until(r, "the policies", func() bool {
		return realapi.RefusedBy(accountPolicy, realapi.Attempt{Verb: "delete", What: "holdfast.dev/v1beta1/volumes", Name: a.volume(a.other)}.Try(r.Context(), a.token))
	})
	return a
}

func (a *attacked) volume(s *v1beta1.NFSServer) string { return s.Name + "-" + a.namespace }

func (a *attacked) stored(s *v1beta1.NFSServer) {
	a.Helper()
	kinds, id := a.ours.HoldfastV1beta1(), a.volume(s)
	check.Got(kinds.Volumes().Create(a.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1beta1.VolumeSpec{Name: id, Node: s.NodeName(), Shared: true}}, metav1.CreateOptions{}))(a)
	check.Got(kinds.Snapshots().Create(a.Context(), &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1beta1.SnapshotSpec{Name: id, Node: s.NodeName(), SourceRef: v1beta1.FromVolume(id)}}, metav1.CreateOptions{}))(a)
	a.Cleanup(func() { _ = kinds.Snapshots().Delete(background, id, metav1.DeleteOptions{}) })
	check.Got(kinds.StorageNodes().Create(a.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: s.NodeName()}}, metav1.CreateOptions{}))(a)
}

func (a *attacked) makeClaim() *core.PersistentVolumeClaim {
	a.Helper()
	class := a.class("ours", ofNFS, a.namespace+"/one", atOnce)
	c := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{"volume.kubernetes.io/selected-node": "gone", "volume.kubernetes.io/storage-provisioner": "nfs.holdfast.dev"}},
		Spec: core.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteMany},
			Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	return check.Got(a.theirs.CoreV1().PersistentVolumeClaims(a.namespace).Create(a.Context(), c, metav1.CreateOptions{}))(a)
}

// nameFor is the name of a PersistentVolume that the first server makes for a claim.
func (a *attacked) nameFor(c *core.PersistentVolumeClaim) string {
	return "pvc-" + string(c.UID) + "." + a.own.NodeName()
}

// object is a PersistentVolume as the library makes it, changed.
func (a *attacked) object(change func(*core.PersistentVolume)) *core.PersistentVolume {
	pv := &core.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: a.nameFor(a.claim), Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "nfs.holdfast.dev", v1beta1.NFSServerAnnotation: a.namespace + "/one"},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteMany},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete, StorageClassName: *a.claim.Spec.StorageClassName, MountOptions: []string{"nfsvers=4.2", "hard", "noresvport"},
			ClaimRef:               &core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: a.namespace, Name: "data", UID: a.claim.UID},
			PersistentVolumeSource: core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: a.ownAddress, Path: "/a"}},
		},
	}
	if change != nil {
		change(pv)
	}
	return pv
}

func (a *attacked) persistentVolume(verb string, change func(*core.PersistentVolume)) realapi.Attempt {
	a.Helper()
	pv := a.object(change)
	return realapi.Attempt{Verb: verb, What: "v1/persistentvolumes", Name: pv.Name, Body: text(a.T, pv)}
}

func text(t *testing.T, o any) string {
	t.Helper()
	b := check.Got(json.Marshal(o))(t)
	return string(b)
}

const (
	ofVolumes    = "holdfast.dev/v1beta1/volumes"
	ofSnapshots  = "holdfast.dev/v1beta1/snapshots"
	ofNodes      = "holdfast.dev/v1beta1/storagenodes"
	ofServers    = "holdfast.dev/v1beta1/nfsservers"
	ofLeases     = "coordination.k8s.io/v1/leases"
	ofClaims     = "v1/persistentvolumeclaims"
	ofPersistent = "v1/persistentvolumes"
)

// everyWay to write what is a server's.
func (a *attacked) everyWay(s *v1beta1.NFSServer) []realapi.Attempt {
	id, node := a.volume(s), s.NodeName()
	adopted := func(kind, more string) string {
		return fmt.Sprintf(`{"apiVersion":"holdfast.dev/v1beta1","kind":%q,"metadata":{"labels":{"holdfast.dev/adopted":"true"}},"spec":{"name":"new","node":%q%s}}`, kind, node, more)
	}
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease"}`
	return []realapi.Attempt{
		{Verb: "create", What: ofVolumes, Name: "new", Body: adopted("Volume", `,"shared":true`)},
		{Verb: "create", What: ofSnapshots, Name: "new", Body: adopted("Snapshot", `,"sourceRef":{"kind":"Volume","name":"a"}`)},
		{Verb: "update", What: ofVolumes, Name: id},
		{Verb: "update", What: ofSnapshots, Name: id},
		{Verb: "update", What: ofVolumes + "/status", Name: id},
		{Verb: "update", What: ofSnapshots + "/status", Name: id},
		{Verb: "delete", What: ofVolumes, Name: id},
		{Verb: "apply", What: ofNodes, Name: node, Body: `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode"}`},
		{Verb: "patch", What: ofNodes + "/status", Name: node, Body: `{"status":{"version":"v9"}}`},
		{Verb: "patch", What: ofServers + "/status", In: a.namespace, Name: s.Name, Body: `{"status":{"clients":3}}`},
		{Verb: "create", What: ofLeases, In: realapi.Namespace, Name: v1beta1.LeasePrefix + node, Body: lease},
		{Verb: "create", What: ofLeases, In: realapi.Namespace, Name: provisionerLease + a.namespace + "." + s.Name, Body: lease},
	}
}

// aCeph is a cluster that nodes would speak to.
const aCeph = `{"fsid":"11111111-2222-3333-4444-555555555555","monitors":["v2:10.0.0.1:3300"],"user":"u"}`

const adoptedVolume = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"labels":{"holdfast.dev/adopted":"true"}},` +
	`"spec":{"name":"new","node":%q,"shared":true}}`

// never are requests of no server.
func (a *attacked) never() []realapi.Attempt {
	own, other, stranger := a.volume(a.own), a.namespace+"/two", v1beta1.NodeOfServer("another/one") // of its name
	access := func(to string) string { return `{"status":{"access":` + to + `}}` }
	server := func(to string) realapi.Attempt {
		return realapi.Attempt{Verb: "patch", What: ofServers + "/status", In: a.namespace, Name: "one", Body: `{"status":` + to + `}`}
	}
	claim := func(body string) realapi.Attempt {
		return realapi.Attempt{Verb: "patch", What: ofClaims, In: a.namespace, Name: "data", Body: body}
	}
	elsewhere := a.persistentVolume
	return []realapi.Attempt{
		{Verb: "create", What: ofVolumes, Name: "new", Body: fmt.Sprintf(`{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","spec":{"name":"new","node":%q}}`, a.own.NodeName())},
		{Verb: "create", What: ofVolumes, Name: "new", Body: fmt.Sprintf(adoptedVolume, stranger)},
		{Verb: "apply", What: ofNodes, Name: stranger, Body: `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode"}`},
		{Verb: "patch", What: ofVolumes + "/status", Name: own, Body: access(`{"nfs":{"server":"` + a.elseAddress + `","path":"/a"}}`)},
		{Verb: "patch", What: ofVolumes + "/status", Name: own, Body: access(`{"image":"/dev/sda"}`)},
		{Verb: "patch", What: ofVolumes + "/status", Name: own, Body: access(`{"directory":"/etc"}`)},
		{Verb: "patch", What: ofVolumes + "/status", Name: own, Body: access(`{"rbd":{"cluster":` + aCeph + `,"pool":"p","image":"a"}}`)},
		{Verb: "patch", What: ofVolumes + "/status", Name: own, Body: access(`{"cephfs":{"cluster":` + aCeph + `,"filesystem":"f","path":"/a"}}`)},
		server(`{"endpoint":"10.0.0.1:2049"}`), server(`{"phase":"Running"}`), server(`{"node":"n"}`),
		{Verb: "patch", What: ofServers, In: a.namespace, Name: "one", Body: `{"spec":{"maxExports":3}}`},
		{Verb: "delete", What: ofServers, In: a.namespace, Name: "one"},
		{Verb: "create", What: ofLeases, In: realapi.Namespace, Name: "holdfast-controller", Body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease"}`},
		elsewhere("create", func(pv *core.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/"}}
		}),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Spec.PersistentVolumeSource = onDriver(own) }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Spec.NFS.Server = a.elseAddress }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations[v1beta1.NFSServerAnnotation] = other }),
		elsewhere("create", func(pv *core.PersistentVolume) {
			pv.Annotations["pv.kubernetes.io/provisioned-by"] = "example.com/other"
		}),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations = nil }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Name = "mine" }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Name = "pvc-" + string(a.claim.UID) }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Name = "pvc-" + string(a.claim.UID) + "." + a.other.NodeName() }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Labels = map[string]string{v1beta1.CopyLabel: own} }),
		elsewhere("create", func(pv *core.PersistentVolume) {
			pv.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "1"}}
		}),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Spec.ClaimRef = nil }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Spec.StorageClassName = "" }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Spec.MountOptions = []string{"hard,addr=10.0.0.1"} }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations[core.MountOptionAnnotation] = "hard,addr=10.0.0.1" }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations[core.MountOptionAnnotation] = "" }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations[dataAnnotation] = other }),
		elsewhere("create", func(pv *core.PersistentVolume) { pv.Annotations[policyAnnotation] = "Delete" }),
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"annotations":{"volume.beta.kubernetes.io/mount-options":"addr=10.0.0.1"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "optioned-" + a.namespace, Body: `{"metadata":{"annotations":{"volume.beta.kubernetes.io/mount-options":"addr=10.0.0.1"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"annotations":{"` + dataAnnotation + `":"` + other + `"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"annotations":{"` + policyAnnotation + `":"Delete"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"labels":{"a":"b"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"spec":{"mountOptions":["addr=10.0.0.1"]}}`},
		{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"annotations":{"nfs.holdfast.dev/server":"` + other + `"}}}`},
		{Verb: "patch", What: ofPersistent + "/status", Name: "own-" + a.namespace, Body: `{"status":{"phase":"Available"}}`},
		{Verb: "patch", What: ofPersistent, Name: "other-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		{Verb: "patch", What: ofPersistent, Name: "other-" + a.namespace, Body: `{"metadata":{"annotations":{"nfs.holdfast.dev/server":"` + a.namespace + `/one"}}}`},
		{Verb: "delete", What: ofPersistent, Name: "other-" + a.namespace},
		{Verb: "patch", What: ofPersistent, Name: "host-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		{Verb: "delete", What: ofPersistent, Name: "host-" + a.namespace},
		{Verb: "patch", What: ofPersistent, Name: "csi-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		{Verb: "patch", What: ofPersistent, Name: "csi-" + a.namespace, Body: `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"nfs.holdfast.dev","nfs.holdfast.dev/server":"` + a.namespace + `/one"}}}`},
		{Verb: "patch", What: ofPersistent, Name: "csi-" + a.namespace, Body: `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`},
		{Verb: "patch", What: ofPersistent, Name: "csi-" + a.namespace, Body: `{"spec":{"claimRef":{"namespace":"` + a.namespace + `","name":"data"}}}`},
		{Verb: "patch", What: ofPersistent + "/status", Name: "csi-" + a.namespace, Body: `{"status":{"phase":"Available"}}`},
		{Verb: "delete", What: ofPersistent, Name: "csi-" + a.namespace},
		{Verb: "patch", What: ofPersistent, Name: "claimed-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		{Verb: "delete", What: ofPersistent, Name: "claimed-" + a.namespace},
		{Verb: "deletecollection", What: ofPersistent},
		{Verb: "deletecollection", What: ofPersistent, Name: "csi-" + a.namespace},
		{Verb: "deletecollection", What: ofPersistent, Name: "other-" + a.namespace},
		{Verb: "deletecollection", What: ofVolumes},
		{Verb: "deletecollection", What: ofVolumes, Name: a.volume(a.other)},
		{Verb: "deletecollection", What: ofSnapshots, Name: a.volume(a.other)},
		{Verb: "deletecollection", What: ofNodes, Name: a.other.NodeName()},
		{Verb: "deletecollection", What: ofServers, In: a.namespace},
		{Verb: "deletecollection", What: ofClaims, In: a.namespace},
		claim(`{"metadata":{"labels":{"a":"b"}}}`), claim(`{"metadata":{"finalizers":null}}`), claim(`{"metadata":{"annotations":{"a":"b"}}}`),
		claim(`{"metadata":{"annotations":{"volume.kubernetes.io/storage-provisioner":null}}}`),
		claim(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"another"}}}`),
		claim(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}]}}`),
		claim(`{"spec":{"volumeName":"pv"}}`),
		{Verb: "patch", What: ofClaims + "/status", In: a.namespace, Name: "data", Body: `{"status":{"phase":"Bound"}}`},
		{Verb: "delete", What: ofClaims, In: a.namespace, Name: "data"},
		{Verb: "patch", What: ofClaims, In: a.namespace, Name: "foreign", Body: `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`},
	}
}

func onDriver(volume string) core.PersistentVolumeSource {
	return core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: volume}}
}

// keep makes PersistentVolumes that are there: of the server, of another, of a directory of a node, and of the driver, one
// of them with what says that it is the server's.
func (a *attacked) keep() {
	a.Helper()
	for name, change := range map[string]func(*core.PersistentVolume){
		"own":      func(*core.PersistentVolume) {},
		"optioned": func(pv *core.PersistentVolume) { pv.Annotations[core.MountOptionAnnotation] = "hard" },
		"other":    func(pv *core.PersistentVolume) { pv.Annotations[v1beta1.NFSServerAnnotation] = a.namespace + "/two" },
		"host": func(pv *core.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/x"}}
		},
		"csi": func(pv *core.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "csi.holdfast.dev"}
			pv.Spec.PersistentVolumeSource = onDriver(a.volume(a.own))
		},
		"claimed": func(pv *core.PersistentVolume) { pv.Spec.PersistentVolumeSource = onDriver(a.volume(a.own)) },
	} {
		pv := a.object(change)
		pv.Name, pv.Spec.ClaimRef, pv.Spec.PersistentVolumeReclaimPolicy = name+"-"+a.namespace, nil, core.PersistentVolumeReclaimDelete
		pv.Finalizers = []string{"example.com/kept"}
		pv.Spec.StorageClassName = noClass
		client := a.theirs.CoreV1().PersistentVolumes()
		check.Got(client.Create(a.Context(), pv, metav1.CreateOptions{}))(a)
		a.Cleanup(func() {
			_ = client.Delete(background, pv.Name, metav1.DeleteOptions{})
			_ = realapi.Unfinalize(background, a.config, pv.Name)
		})
	}
	class := noClass
	foreign := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Annotations: map[string]string{"volume.kubernetes.io/selected-node": "gone"}}, Spec: a.claim.Spec}
	foreign.Spec.StorageClassName = &class
	check.Got(a.theirs.CoreV1().PersistentVolumeClaims(a.namespace).Create(a.Context(), foreign, metav1.CreateOptions{}))(a)
}

func TestToken_OfAnNFSServerWritesOnlyItsOwnObjects(t *testing.T) {
	r := newRig(t)
	a := r.attack()
	a.keep()
	own := append(a.everyWay(a.own),
		a.persistentVolume("create", nil),
		realapi.Attempt{Verb: "patch", What: ofPersistent, Name: "own-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		realapi.Attempt{Verb: "patch", What: ofPersistent, Name: "optioned-" + a.namespace, Body: `{"metadata":{"finalizers":null}}`},
		realapi.Attempt{Verb: "delete", What: ofPersistent, Name: "own-" + a.namespace},
	)
	for _, one := range own {
		if err := one.Try(t.Context(), a.token); err != nil {
			t.Errorf("its own, by the rights that it has: %s: %v", one, err)
		}
	}
	realapi.AllRights(t, r.config, a.namespace, rightsName)
	wait.Until(r, "all rights", func() bool {
		return realapi.RefusedBy(accountPolicy, realapi.Attempt{Verb: "delete", What: ofClaims, In: a.namespace, Name: "data"}.Try(t.Context(), a.token))
	})
	access := `{"status":{"access":{"nfs":{"server":"` + a.ownAddress + `","path":"/a"}}}}`
	for _, one := range []realapi.Attempt{
		{Verb: "patch", What: ofVolumes + "/status", Name: a.volume(a.own), Body: access},
		{Verb: "patch", What: ofClaims, In: a.namespace, Name: "data", Body: `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`},
	} {
		if err := one.Try(t.Context(), a.token); err != nil {
			t.Errorf("what it has to write: %s: %v", one, err)
		}
	}
	forged := realapi.Forged(a.volume(a.own), a.volume(a.own), a.own.NodeName())
	for _, one := range slices.Concat(a.everyWay(a.other), a.never(), forged) {
		if err := one.Try(t.Context(), a.token); !realapi.RefusedBy(accountPolicy, err) {
			t.Errorf("with all rights: %s: %v", one, err)
		}
	}
	for _, one := range realapi.Unmarked(t, r.ours, "marked-"+a.namespace, a.own.NodeName()) {
		if err := one.Try(t.Context(), a.token); !realapi.RefusedBy(accountPolicy, err) {
			t.Errorf("with all rights: %s: %v", one, err)
		}
	}
	realapi.Install(t, r.config, deploy.Policies)
	reserved := realapi.Reserved(a.volume(a.own), a.own.NodeName())
	for policy, attempts := range reserved {
		wait.Until(r, "the policy "+policy, func() bool {
			return slices.ContainsFunc(attempts, func(one realapi.Attempt) bool { return realapi.RefusedBy(policy, one.Try(t.Context(), a.token)) })
		})
	}
	realapi.AllRefused(t, accountPolicy, a.token, reserved)
}

func TestToken_WithoutAServerPodWritesNothing(t *testing.T) {
	r := newRig(t)
	a := r.attack()
	realapi.PodOn(t, r.config, a.namespace, rightsName, "evil", "nfs-accounts-nowhere")
	for _, pod := range []string{"", "evil"} {
		token := realapi.WithToken(t, r.config, a.namespace, rightsName, pod)
		for _, one := range a.everyWay(a.own) {
			if err := one.Try(t.Context(), token); !realapi.RefusedBy(accountPolicy, err) || !strings.Contains(err.Error(), "not of the pod nfs-NAME-0") {
				t.Errorf("pod %q: %s: %v", pod, one, err)
			}
		}
		if err := a.persistentVolume("create", nil).Try(t.Context(), token); !realapi.RefusedBy(accountPolicy, err) {
			t.Errorf("pod %q: a PersistentVolume: %v", pod, err)
		}
	}
}

func TestPolicy_NamesEveryStatusFieldThatAServerMayNotWrite(t *testing.T) {
	objects := limitsOf(nil, nil, &v1beta1.NFSSpec{}, "ours")
	policy := check.Got(objects[0].MarshalJSON())(t)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1beta1.NFSServerStatus]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if is := strings.Contains(string(policy), "status.?"+name+" =="); is == (name == "clients") {
			t.Errorf("status.%s is compared: %v", name, is)
		}
	}
}

func TestPolicy_LimitsHoldTheAddressesOfKnownServers(t *testing.T) {
	servers := []*v1beta1.NFSServer{named("b", "two"), named("a", "one"), named("a", "headless"), named("a", "none")}
	objects := limitsOf(servers, map[string]string{"a/one": "10.0.0.1", "b/two": "fd00::2", "a/headless": "None", "c/stray": "10.0.0.3"}, &v1beta1.NFSSpec{}, "ours")
	var names []string
	for _, o := range objects {
		names = append(names, o.GetKind()+" "+o.GetName())
		text, err := o.MarshalJSON()
		if err != nil || strings.Contains(string(text), deploy.Namespace) {
			t.Errorf("%s names the namespace of the manifests: %v", o.GetName(), err)
		}
	}
	if len(names) != 8 || !slices.Contains(names, "ValidatingAdmissionPolicyBinding "+classPolicy) {
		t.Errorf("the limits are %v", names)
	}
	variables, _, _ := unstructured.NestedSlice(objects[0].Object, "spec", "variables")
	if first := variables[0].(map[string]any); first["name"] != "servers" || first["expression"] != `{"a/one": "10.0.0.1", "b/two": "fd00::2"}` {
		t.Errorf("the addresses are %v", first)
	}
}
