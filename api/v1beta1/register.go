package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind here.
const GroupName = "holdfast.dev"

// SchemeGroupVersion is the group and version of every kind here.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme teaches a scheme the kinds of Holdfast.
var AddToScheme = schemeBuilder.AddToScheme

// Resource qualifies the plural name of a kind with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&NFSServer{}, &NFSServerList{},
		&NodeJob{}, &NodeJobList{},
		&Snapshot{}, &SnapshotList{},
		&StorageCluster{}, &StorageClusterList{},
		&StorageNode{}, &StorageNodeList{},
		&StorageUpgrade{}, &StorageUpgradeList{},
		&Volume{}, &VolumeList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
