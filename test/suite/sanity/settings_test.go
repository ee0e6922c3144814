package sanity

import (
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// setting is an engine on a file system.
type setting struct {
	engine string
	kind   hostfs.Kind
}

// imageOnXFS is the setting of tests that need no other.
var imageOnXFS = setting{"image", hostfs.XFS}

// scenario is run in a world of its own.
type scenario struct {
	name string
	run  func(*world)
}

func TestImageOverExt4(t *testing.T) {
	hostfs.Long(t)
	inSetting(t, setting{"image", hostfs.Ext4})
}

func TestImageOverBtrfs(t *testing.T) {
	hostfs.Long(t)
	inSetting(t, setting{"image", hostfs.Btrfs})
}

func TestImageOverXFS(t *testing.T)          { inSetting(t, imageOnXFS) }
func TestDirectoryOverBtrfs(t *testing.T)    { inSetting(t, setting{"directory", hostfs.Btrfs}) }
func TestDirectoryOverXFSQuota(t *testing.T) { inSetting(t, setting{"directory", hostfs.XFSQuota}) }

func TestDirectoryOverExt4Quota(t *testing.T) { inSetting(t, setting{"directory", hostfs.Ext4Quota}) }

func inSetting(t *testing.T, s setting) {
	hostfs.RequireRoot(t)
	all := slices.Concat(everywhere, directoriesOnly)
	if s.engine == "image" {
		all = slices.Concat(everywhere, imagesOnly)
	}
	hostfs.New(t, s.kind, 20*gib) // skips here, once, where the kernel cannot
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) { test.run(newWorld(t, s, "")) })
	}
}

var everywhere = []scenario{
	{"passes csi-sanity with file systems", func(w *world) { w.sanity("mount") }},

	{"repeats of stage and publish stack nothing", repeatsOfStageAndPublishStackNothing},
	{"a volume that is unstaged can be deleted at once", aVolumeThatIsUnstagedCanBeDeletedAtOnce},
	{"a staging path that cannot be is refused and left alone", aStagingPathThatCannotBeIsRefusedAndLeftAlone},
	{"a staging path below a link is the path it names", aStagingPathBelowALinkIsThePathItNames},
	{"a repeated stage for another use is refused", aRepeatedStageForAnotherUseIsRefused},
	{"mount flags reach the target", mountFlagsReachTheTarget},
	{"mount flags that cannot apply are refused and nothing is left", mountFlagsThatCannotApplyAreRefusedAndNothingIsLeft},
	{"the group of a volume may write it", theGroupOfAVolumeMayWriteIt},
	{"a volume that stays staged goes to the group of the next pod", aVolumeThatStaysStagedGoesToTheGroupOfTheNextPod},
	{"many callers at once get one mount", manyCallersAtOnceGetOneMount},

	{"a target that cannot be is refused and left alone", aTargetThatCannotBeIsRefusedAndLeftAlone},
	{"a target may be an empty directory", aTargetMayBeAnEmptyDirectory},
	{"only what is staged is published", onlyWhatIsStagedIsPublished},
	{"a read-only target takes no writes", aReadOnlyTargetTakesNoWrites},
	{"access modes say how many targets there may be", accessModesSayHowManyTargetsThereMayBe},
	{"a killed process leaves volumes in use", aKilledProcessLeavesVolumesInUse},
	{"a node drains whatever became of its volumes", aNodeDrainsWhateverBecameOfItsVolumes},

	{"a volume grows while it is used", aVolumeGrowsWhileItIsUsed},
	{"a volume that grew unused is large when it is staged", aVolumeThatGrewUnusedIsLargeWhenItIsStaged},
	{"expand on the node refuses what is not there", expandOnTheNodeRefusesWhatIsNotThere},

	{"stats are those of the volume and not of the pool", statsAreThoseOfTheVolumeAndNotOfThePool},
	{"stats of what is not there are not found", statsOfWhatIsNotThereAreNotFound},
	{"the health of a volume is that of its mounts too", theHealthOfAVolumeIsThatOfItsMountsToo},

	{"an inline volume lives as long as its pod", anInlineVolumeLivesAsLongAsItsPod},
	{"an inline volume that cannot be mounted is removed at once", anInlineVolumeThatCannotBeMountedIsRemovedAtOnce},

	{"a damaged volume is shown, refused, and hides no other", aDamagedVolumeIsShownRefusedAndHidesNoOther},
}

var imagesOnly = []scenario{
	{"passes csi-sanity with block volumes", func(w *world) { w.sanity("block") }},

	{"a block volume is a device at its target", aBlockVolumeIsADeviceAtItsTarget},
	{"a block volume has what was written without a sync", aBlockVolumeHasWhatWasWrittenWithoutASync},
	{"a read-only block target takes no writes", aReadOnlyBlockTargetTakesNoWrites},
	{"a block volume leaves the node in whatever order", aBlockVolumeLeavesTheNodeInWhateverOrder},
	{"a block volume that is gone leaves no device", aBlockVolumeThatIsGoneLeavesNoDevice},
	{"a block volume grows while it is used", aBlockVolumeGrowsWhileItIsUsed},
	{"a block volume keeps its device whatever its container asks of it", aBlockVolumeKeepsItsDeviceWhateverItsContainerAsks},
	{"a block volume that its container made read-only is written by the next", aBlockVolumeThatItsContainerMadeReadOnlyIsWrittenByTheNext},
	{"a block volume keeps its device beside volumes that go", aBlockVolumeKeepsItsDeviceBesideOnesThatGo},
	{"a block volume whose device was lost while no process ran is never published", aBlockVolumeWhoseDeviceWasLostIsNeverPublished},
	{"a block volume whose device is another program's by now leaves the node", aBlockVolumeWhoseDeviceIsAnotherProgramsLeavesTheNode},
	{"the file of a block volume for readers only cannot be changed", theFileOfABlockVolumeForReadersCannotBeChanged},
	{"a block target that cannot be is refused and left alone", aBlockTargetThatCannotBeIsRefusedAndLeftAlone},
	{"a corrupt image is neither mounted nor formatted", aCorruptImageIsNeitherMountedNorFormatted},
}

var directoriesOnly = []scenario{
	{"a directory cannot be a block volume", aDirectoryCannotBeABlockVolume},
}
