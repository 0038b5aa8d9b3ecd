package deliverytest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/features"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// Options say what to run the suite on.
type Options struct {
	// Kind makes a kind with namespaces of its own for a test.
	Kind func(t *testing.T) Kind
	// Delivery is the delivery mode under test; ModeUnknown is Filter.
	Delivery sharding.Mode
	// Ignores says that the server may ignore what the delivery mode asks for.
	Ignores bool
	// Share makes a share of the options; nil: delivery.New as it is.
	Share func(delivery.Options) *delivery.Share
	// WatchList lists which settings of client-go's WatchList to test; nil: off and on.
	WatchList []bool
}

type suite struct {
	kind      func(t *testing.T) Kind
	share     func(delivery.Options) *delivery.Share
	delivery  sharding.Mode
	ignores   bool
	watchList bool
	// follows is the Patience of shares.
	follows time.Duration
	runs    *atomic.Int64
}

// Run runs the suite.
func Run(t *testing.T, o Options) {
	if o.Share == nil {
		o.Share = delivery.New
	}
	if o.Delivery == sharding.ModeUnknown {
		o.Delivery = sharding.Filter
	}
	if o.WatchList == nil {
		o.WatchList = []bool{false, true}
	}
	for _, watchList := range o.WatchList {
		s := suite{o.Kind, o.Share, o.Delivery, o.Ignores, watchList, 400 * time.Millisecond, &atomic.Int64{}}
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			if watchList && !features.FeatureGates().Enabled(features.WatchListClient) {
				t.Skip("informers of this client-go ask for no initial events unless KUBE_FEATURE_WatchListClient=true is set")
			}
			for _, c := range []struct {
				name string
				test func(suite, *testing.T)
			}{
				{"EmptyShareSyncs", suite.emptyShareSyncs},
				{"HoldsAndHearsItsShare", suite.holdsAndHearsItsShare},
				{"R8NobodysSlotsAreListedOnce", suite.listsWhatNobodyHadOnce},
				{"RanTwice", suite.ranTwice},
				{"R10LosingIsSilent", suite.losingIsSilent},
				{"R8DeletedSinceWarm", suite.deletedSinceWarm},
				{"R8HandedWaitsForTheStream", suite.handedWaits},
				{"R8HandedFallsBackToAList", suite.handedFallsBack},
				{"R8ExpelledListsAgain", suite.expelledListsAgain},
				{"R8Versions", suite.versions},
				{"R8DeletionsAreCarried", suite.deletionsAreCarried},
				{"R8DeletionsAreSeen", suite.deletionsAreSeen},
				{"R8DeletionsWithoutProof", suite.deletionsWithoutProof},
				{"R8LostAnswersAreCarried", suite.lostAnswersAreCarried},
				{"R8ReachedOnAQuietKind", suite.reachedOnAQuietKind},
				{"R8NoBookmarks", suite.noBookmarks},
				{"R8ShowsWritten", suite.showsWritten},
				{"ReadsShowWrites", suite.readsShowWrites},
				{"ReadsEndWithTheSlot", suite.readsEndWithTheSlot},
				{"ReadsShowUnseenDeletions", suite.readsShowUnseenDeletions},
				{"ReadsBeginBeforeTheSlotOpens", suite.readsBeginBeforeTheSlotOpens},
				{"ReadsEndWithTheKind", suite.readsEndWithTheKind},
				{"ReadsOutlastLists", suite.readsOutlastLists},
				{"ReadsOfWhatStays", suite.readsOfWhatStays},
				{"GoneListsTheShareOnce", suite.goneListsOnce},
				{"WatchDrops", suite.watchDrops},
				{"WatchRefused", suite.watchRefused},
				{"WatchUnanswered", suite.watchUnanswered},
				{"EventCannotBeDecoded", suite.eventCannotBeDecoded},
				{"WatchTorn", suite.watchTorn},
				{"ListErrorsAreRetried", suite.listErrors},
				{"KindNotServedForAWhile", suite.notServedForAWhile},
				{"KindNotServedAtFirst", suite.notServedAtFirst},
				{"ListsAloneNotServed", suite.listsNotServed},
				{"R8KindCannotBeListed", suite.cannotBeListed},
				{"R8KindIsMerelySlow", suite.merelySlow},
				{"R8FailureIsOver", suite.failureIsOver},
				{"ReleaseEndsWarm", suite.releaseEndsWarm},
				{"LateInformer", suite.lateInformer},
				{"SeveralInformersOfAKind", suite.severalInformers},
				{"Transform", suite.transform},
				{"KeyNamespace", suite.keyNamespace},
				{"R8WholeKindsBeginWithNow", suite.wholeKindsBeginWithNow},
				{"UndeclaredKindIsStock", suite.undeclared},
				{"GainListsTheGained", suite.gainListsTheGained},
				{"TrafficTells", suite.trafficTells},
				{"GrowthUnderTraffic", suite.growthUnderTraffic},
				{"CutWhileGrowing", suite.cutWhileGrowing},
				{"LostAndRegainedAtOnce", suite.lostAndRegainedAtOnce},
				{"R11LabelsGoWrong", suite.labelsGoWrong},
				{"R11LabelsCopied", suite.labelsCopied},
				{"R11LabelsRefused", suite.labelsRefused},
				{"R15DeletionsAreWaitedFor", suite.deletionsAreWaitedFor},
				{"R15Namesakes", suite.namesakes},
				{"R11LookUpAheadOfTheStream", suite.lookUpAhead},
				{"OwnedKind", suite.ownedKind},
				{"OwnersThatAreGone", suite.ownersThatAreGone},
				{"OwnedLabelsGoWrong", suite.ownedLabelsGoWrong},
				{"OrphansAreWhole", suite.orphansAreWhole},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel() // they wait for backoffs and bookmarks most of the time
					c.test(s, t)
				})
			}
		})
	}
}
