package v1beta1

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestKeys_AreFitForMetadata(t *testing.T) {
	for _, key := range []string{TopologyKey, AgentFinalizer, AdoptedLabel} {
		if faults := validation.IsQualifiedName(key); len(faults) > 0 {
			t.Errorf("%s: %s", key, strings.Join(faults, "; "))
		}
		if domain, _, found := strings.Cut(key, "/"); !found || domain != GroupName && !strings.HasSuffix(domain, "."+GroupName) {
			t.Errorf("%s is not of %s", key, GroupName)
		}
	}
}

func TestVolume_IsRetainedUnlessItsSpecSaysOtherwise(t *testing.T) {
	for said, meant := range map[OnNodeLoss]OnNodeLoss{
		"": RetainOnNodeLoss, RetainOnNodeLoss: RetainOnNodeLoss, DeleteOnNodeLoss: DeleteOnNodeLoss,
	} {
		spec := VolumeSpec{OnNodeLoss: said}
		if got := spec.NodeLossPolicy(); got != meant {
			t.Errorf("%q means %s, want %s", said, got, meant)
		}
		if spec.OnNodeLoss != said {
			t.Errorf("asking what %q means wrote %q into the spec", said, spec.OnNodeLoss)
		}
	}
}

func TestErrorCode_EachCanBeTheReasonOfACondition(t *testing.T) {
	codes := []ErrorCode{
		ErrorNotFound, ErrorExists, ErrorInvalid, ErrorOutOfRange,
		ErrorExhausted, ErrorBusy, ErrorPrecondition, ErrorUnavailable,
	}
	reasons := []string{
		ReasonReady, ReasonHealthy, ReasonCreating, ReasonExpanding, ReasonDeleting, ReasonDamaged,
		ReasonDevice, ReasonFileSystem, ReasonNotGrown, ReasonPoolErrors,
		ReasonMissing, ReasonNodeDown, ReasonNodeGone, ReasonPoolFailing, ReasonNoPool, ReasonNoDisk,
	}
	for _, code := range codes {
		reasons = append(reasons, string(code))
	}
	for _, reason := range reasons {
		if strings.Trim(reason, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || reason == "" {
			t.Errorf("%q is no single word", reason)
		}
	}
	slices.Sort(reasons)
	if unique := slices.Compact(slices.Clone(reasons)); len(unique) != len(reasons) {
		t.Errorf("a reason has two meanings: %v", reasons)
	}
}
