package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCephClient_AddressIsReadFromWhatTheKernelShows(t *testing.T) {
	c := CephClient{ID: "client.4305"}
	for text, want := range map[string]string{
		"instance: client.4305 (1)10.0.0.5:0/1148\nblocklisted: false\n":        "10.0.0.5:0/1148",
		"instance: client.4305 (3)[fd00::5]:0/4294967295\nblocklisted: false\n": "[fd00::5]:0/4294967295",
	} {
		if got := addressInStatus([]byte(text), c); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "instance: client.4306 (1)10.0.0.5:0/1148\n", "instance: client.4305\n", "instance: client.4305 10.0.0.5:0/1148\n"} {
		if got := addressInStatus([]byte(text), c); got != "" {
			t.Errorf("%q: %q is taken for an address", text, got)
		}
	}
}

func TestCephClient_ThatNeverWasIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("debugfs is only for root")
	}
	gone, err := IsCephClientGone(CephClient{FSID: "11111111-2222-3333-4444-555555555555", ID: "client.1"})
	if err != nil || !gone {
		t.Errorf("it is there: %v", err)
	}
	if _, err := openDebugFS("no-such-thing"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		t.Errorf("the reason is %v", err)
	}
}
