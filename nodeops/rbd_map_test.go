package nodeops

import (
	"errors"
	"testing"
	"testing/synctest"
)

// A mapping that succeeds when no caller waits any more is undone before another caller can be given its device.
func TestMapRBD_DeviceThatIsUnmappedIsGivenToNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, undone := make(chan struct{}), make(chan struct{})
		all := rbdMaps{running: map[string]*rbdMap{}, onThread: func(*RBD) (*RBDDevice, func() error, error) {
			<-answer
			return &RBDDevice{Path: "/dev/rbd0"}, func() error { <-undone; return nil }, nil
		}}
		first := all.join(&RBD{Image: "a"})
		all.leave(first)
		close(answer)
		synctest.Wait()
		second := all.join(&RBD{Image: "a"})
		close(undone)
		<-second.done
		if second.device != nil || !errors.Is(second.err, errAbandoned) {
			t.Errorf("the second caller is given %+v, %v", second.device, second.err)
		}
		third := all.join(&RBD{Image: "a"})
		if <-third.done; third.err != nil || third.device == nil {
			t.Errorf("the third caller, who waits, is given %+v, %v", third.device, third.err)
		}
	})
}
