package doctor

import (
	"fmt"
	"slices"
	"strings"
)

func checkInlineVolumes(f *Facts) []Finding {
	c := f.Served()
	if len(f.InlineUsers) == 0 || !f.WithCSI() || c.Spec.CSI.Ephemeral != nil {
		return nil
	}
	slices.Sort(f.InlineUsers)
	some := f.InlineUsers[:min(len(f.InlineUsers), 5)]
	return []Finding{warn("", fmt.Sprintf(`Allow them: kubectl patch storageclusters.holdfast.dev %s --type=merge -p '{"spec":{"csi":{"ephemeral":{"pools":["POOL"],"maxSize":"10Gi"}}}}'. Or give these pods generic ephemeral volumes.`, c.Name),
		"%d pods ask for inline ephemeral volumes, which spec.csi.ephemeral does not allow: those that run keep theirs, others do not start: %s", len(f.InlineUsers), strings.Join(some, ", "))}
}
