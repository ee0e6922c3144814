package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBoot_FailedCallOfAnEarlierBootIsNoneOfThisOne(t *testing.T) {
	const line = "runtime: epollwait on fd 4 failed with 38\n"
	log := filepath.Join(t.TempDir(), "node2.log")
	first := added(log, failedCall)
	if first() {
		t.Error("a log that is not there has the text")
	}
	if err := os.WriteFile(log, []byte("boots\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	second := added(log, failedCall)
	if !first() || second() {
		t.Errorf("in the first boot %t, in the second %t", first(), second())
	}
	if err := os.WriteFile(log, []byte("boots\n"+line+"boots\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	if !second() {
		t.Error("the second boot's is not seen")
	}
}
