package v1beta1

import "strings"

// NamespacedReference names an object of a namespace.
type NamespacedReference struct {
	// namespace of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// String is NAMESPACE/NAME, and empty without a reference.
func (r *NamespacedReference) String() string {
	if r == nil {
		return ""
	}
	return r.Namespace + "/" + r.Name
}

// ReferenceTo reads NAMESPACE/NAME. An empty text is no reference.
func ReferenceTo(object string) *NamespacedReference {
	if object == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(object, "/")
	return &NamespacedReference{namespace, name}
}

// SourceReference names what the content of a volume or snapshot comes from.
type SourceReference struct {
	// kind of the object.
	// +required
	Kind SourceKind `json:"kind"`
	// name of the Volume or Snapshot object.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// FromVolume names a Volume as a source.
func FromVolume(name string) SourceReference { return SourceReference{SourceVolume, name} }

// SourceKind is the kind of a source.
// +kubebuilder:validation:Enum=Volume;Snapshot
type SourceKind string

const (
	SourceVolume   SourceKind = "Volume"
	SourceSnapshot SourceKind = "Snapshot"
)
