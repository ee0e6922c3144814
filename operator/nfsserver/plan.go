package nfsserver

import (
	"cmp"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// input is all that the objects of a server depend on.
type input struct {
	server    *v1.NFSServer
	cluster   *v1.StorageCluster
	namespace string // of Holdfast
	release   render.Release
	image     v1.Image // of the server, instead of the StorageCluster's; "" otherwise
	address   string   // that the Service has, or had; "" as long as there is none
	node      string   // that the server must stay on; "" if any will do
	closing   closing
	renewed   string // see accountAnnotation
}

// service is made before the pod, which is told its address.
func service(in input) ([]*unstructured.Unstructured, error) {
	o, err := manifest[core.Service](deploy.NFS, "Service")
	if err != nil {
		return nil, err
	}
	spec := in.server.Spec.Service
	o.Annotations = spec.Annotations
	o.Spec.Type = cmp.Or(spec.Type, core.ServiceTypeClusterIP)
	o.Spec.Selector = selector(in.server)
	// One that was deleted by hand gets back the address that volumes name.
	o.Spec.ClusterIP = cmp.Or(spec.ClusterIP, in.address)
	return all(in.server, o)
}

// workload is the pod of the server.
func workload(in input) ([]*unstructured.Unstructured, error) {
	set, err := manifest[apps.StatefulSet](deploy.NFS, "StatefulSet")
	if err != nil {
		return nil, err
	}
	set.Spec.ServiceName = objectName(in.server)
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(in.server)}
	set.Spec.Template.Labels = labelsOf(in.server)
	delete(set.Spec.Template.Labels, managedBy) // it is the StatefulSet's
	if in.renewed != "" {
		metav1.SetMetaDataAnnotation(&set.Spec.Template.ObjectMeta, accountAnnotation, in.renewed)
	}
	in.pod(&set.Spec.Template.Spec)
	return all(in.server, set)
}

func all(s *v1.NFSServer, objects ...object) (finished []*unstructured.Unstructured, err error) {
	for _, o := range objects {
		u, err := belonging(o, s)
		if err != nil {
			return nil, err
		}
		finished = append(finished, u)
	}
	return finished, nil
}

// serverImage is what a server runs.
func (in *input) serverImage() string {
	return string(cmp.Or(in.image, in.release.Images(in.cluster).NFS))
}
