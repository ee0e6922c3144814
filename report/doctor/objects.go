package doctor

import v1 "github.com/holdfast-storage/holdfast/api/v1"

// lookAtObjects names the objects that have a field which this program cannot decode.
func lookAtObjects(f *Facts) (found []Finding) {
	found = append(found, unreadable(f.Clusters, "StorageCluster")...)
	found = append(found, unreadable(f.StorageNodes, "StorageNode")...)
	found = append(found, unreadable(f.Volumes, "Volume")...)
	found = append(found, unreadable(f.Snapshots, "Snapshot")...)
	found = append(found, unreadable(f.Servers, "NFSServer")...)
	found = append(found, unreadable(f.Jobs, "NodeJob")...)
	return append(found, unreadable(f.Upgrades, "StorageUpgrade")...)
}

func unreadable[T any, P interface {
	*T
	v1.Object
}](all []T, kind string) (found []Finding) {
	for i := range all {
		o := P(&all[i])
		if err := o.Unreadable(); err != nil {
			found = append(found, problem(kind+" "+o.GetName(),
				"Correct the field; kubectl get -o yaml shows it. If the object was written by a newer release, run that one.",
				"it is left alone, as it cannot be read: %v", err))
		}
	}
	return found
}
