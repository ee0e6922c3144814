package kube

import (
	"cmp"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// WarnsOfHoldfast returns whether an event is a warning that Holdfast or one of its sidecars recorded, or that concerns
// an object of Holdfast. namespace is that of Holdfast.
func WarnsOfHoldfast(e *core.Event, namespace string) bool {
	writer := cmp.Or(e.Source.Component, e.ReportingController)
	return e.Type == core.EventTypeWarning && (e.Namespace == namespace || strings.HasPrefix(writer, v1beta1.AppName) ||
		strings.HasPrefix(writer, v1beta1.DriverName) || strings.HasPrefix(writer, v1beta1.ProvisionerName) ||
		strings.HasPrefix(e.InvolvedObject.APIVersion, v1beta1.GroupName+"/"))
}

// onlyWarnings restricts a watch of events to warnings.
func onlyWarnings(o *metav1.ListOptions) { o.FieldSelector = "type=" + core.EventTypeWarning }

// slimWarning drops the content of warnings of other programs, of which a cluster in trouble has thousands. No selector
// could exclude them: Holdfast records warnings on claims and pods in all namespaces, and its sidecars use names of
// their own.
func slimWarning(namespace string) func(any) (any, error) {
	return func(o any) (any, error) {
		e, is := o.(*core.Event)
		if !is {
			return o, nil
		}
		e.ManagedFields = nil
		if WarnsOfHoldfast(e, namespace) {
			return e, nil
		}
		return &core.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion}}, nil
	}
}
