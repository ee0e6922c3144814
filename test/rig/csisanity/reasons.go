package csisanity

// Reasons returns, for each case that is skipped whatever the backend, why that is right, by a part of the case's name.
func Reasons() map[string]string {
	return map[string]string{
		"ControllerPublishVolume":   "a volume is attached by the node that uses it; there is nothing to publish from outside, and the capability is not announced",
		"ControllerUnpublishVolume": "as ControllerPublishVolume",
		"volume lifecycle":          "goes through ControllerPublishVolume; the cases \"Node Service should work\" and \"should be idempotent\" are the same without it",
		"volume attribute class":    "volumes have no mutable parameters yet, and the capability is not announced",
		"ModifyVolume":              "as volume attribute class",
		"NodeGetStorageHealth":      "says how whole backends are, of which the driver knows the volumes only; the capability is not announced",
		"pagination should detect volumes added between pages": "switched off by csi-sanity itself, as it depends on the number of volumes; " +
			"TestList_PagesStayStableWhileVolumesComeAndGo of the driver asks the same and more",
		brokenCase: "csi-test 5.6.0 compares the topologies by reflection, which sees the size cache of the one that was sent; " +
			"TestSnapshot_IsWhereItsVolumeIs asks the same with a comparison of protobuf messages",
	}
}

// brokenCase cannot pass whatever a driver does, so it is left out by name.
const brokenCase = "should succeed when creating a snapshot with accessibility requirements"
