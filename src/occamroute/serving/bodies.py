"""What requests hold and answers give, as pydantic reads and writes them; unknown fields are refused.

Amounts of money travel as texts ("0.0015"), so that no client's floats change them; requests may give numbers too.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from occamroute._money import money_from_text
from occamroute.serving.queries import numbers, unpacked, unpacked_bytes

__all__ = [
    "FIRST",
    "AddClassifierRequest",
    "AddRowsRequest",
    "Alarms",
    "Amount",
    "Budget",
    "Changed",
    "ClassifyAnswer",
    "ClassifyRequest",
    "Decisions",
    "FeedbackAnswer",
    "Frontier",
    "LabelRequest",
    "Numbers",
    "PlanAnswer",
    "PlanRequest",
    "Receipt",
    "RouteAnswer",
    "RouteRequest",
    "SettleAnswer",
    "SettleRequest",
    "SuccessRequest",
    "Whole",
    "amount",
    "feature_array",
    "query_value",
    "written",
]

DECIMAL = r"^[0-9]{1,9}(\.[0-9]{1,12})?$"
DECISION = r"^[0-9a-f]{28}$"
BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
# No float32 is farther from 0.
LARGEST = 3e38
TINY = 1e-100
# Of a list only the first error is told: to gather a million of them takes minutes, and the event loop with it.
FIRST = Field(fail_fast=True)


class Strict(BaseModel):
    """A request: what is not listed, or of another type, is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Given(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Number = Annotated[float, Field(allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
Amount = (
    Annotated[str, Field(pattern=DECIMAL, examples=["0.0015"])]
    | Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e9)]
)
# JSON has one kind of number: 2.0 is as whole as 2.
Whole = Annotated[
    int, BeforeValidator(lambda given: int(given) if type(given) is float and given.is_integer() else given)
]
Share = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
Money = Annotated[str, Field(description="An exact decimal.", examples=["0.0015"])]
DecisionId = Annotated[str, Field(pattern=DECISION, examples=["019a0b1c2d3e0123456789abcdef"])]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Packed32(Strict):
    """Numbers as the base64 of little-endian 32-bit floats."""

    float32: str = Field(pattern=BASE64)


class Packed64(Strict):
    """Numbers as the base64 of little-endian 64-bit floats."""

    float64: str = Field(pattern=BASE64)


class PackedBytes(Strict):
    """Bytes, of an image's file say, as base64."""

    base64: str = Field(pattern=BASE64)


Numbers = Annotated[list[Number], FIRST]
Features = Numbers | Packed32 | Packed64


class RouteRequest(Strict):
    """A query to decide about."""

    features: Features | None = Field(None, description="The features of the query; left out where none are looked at.")
    query: str | None = Field(None, description="The text of the query, where its text features are looked at.")
    hold: bool = Field(False, description="Hold the cost in the ledger until it is settled or the lease ends.")
    lease_seconds: float = Field(120.0, gt=0, le=86_400, allow_inf_nan=False)


class RouteAnswer(Given):
    """A decision: the classifier to ask, and what that is planned to cost, features included."""

    decision: str
    classifier: str
    cost: Money
    success: float = Field(description="The estimated chance that the classifier is right.")
    reason: str
    held: bool


class SettleRequest(Strict):
    """What a decision whose cost was held came to."""

    decision: DecisionId
    cost: Amount = Field(description="What was really spent, features included; 0 gives everything back.")


class SettleAnswer(Given):
    """What is written into the ledger, if it is the first settlement."""

    decision: str
    cost: Money


class CorrectRequest(Strict):
    """What was really spent under a key of the ledger."""

    key: str = Field(min_length=1, max_length=400, description="The hold's key; for /v1/route the decision's id.")
    cost: Amount = Field(description="What was really spent; it may be above what was held.")


class CorrectAnswer(Given):
    """What the ledger now says was spent under the key."""

    key: str
    cost: Money


class ClassifyRequest(Strict):
    """A query to answer."""

    query: str | Numbers | Packed32 | Packed64 | PackedBytes
    features: Features | None = Field(None, description="Features that were paid for elsewhere.")


class CallMade(Given):
    """One call of a classifier for a query."""

    classifier: str
    outcome: str
    cost: Money
    seconds: float


class ClassifyAnswer(Given):
    """The answer to a query."""

    label: str
    probabilities: dict[str, float]
    classifier: str
    decision: str
    cost: Money = Field(description="All calls and features.")
    calls: list[CallMade]


class PlanRequest(Strict):
    """Many queries to decide about together, within one budget."""

    features: Annotated[list[Numbers], FIRST] | Packed32 | Packed64 | None = Field(
        None, description="A row of features for each query; packed rows follow one another."
    )
    queries: Whole | None = Field(None, ge=1, description="Their number, where no features are looked at.")
    budget: Amount


class PlanAnswer(Given):
    """Which classifier answers which query, and the proof that it is the best choice for these estimates."""

    names: list[str]
    choice: list[int] = Field(description="For each query the place of its classifier in names.")
    planned_cost: float
    expected_accuracy: float = Field(description="What held-out rows say about plans like this one.")
    price: float
    bound: float
    gap: float


class LabelRequest(Strict):
    """What was true of a query: its label."""

    decision: DecisionId
    label: str = Field(max_length=1000)


class SuccessRequest(Strict):
    """How right the answer to a query was, from 0 to 1."""

    decision: DecisionId
    success: Share


class FeedbackAnswer(Given):
    """How right the answer was."""

    decision: str
    success: float


class FrontierPoint(Given):
    """What a query may cost on average, the accuracy that is expected for it, and the price there."""

    cost: float
    accuracy: float
    price: float


class Frontier(Given):
    """The expected accuracy at every mean cost of a query."""

    points: list[FrontierPoint]


class Budget(Given):
    """How the budget stands in its present window; times are seconds since 1970."""

    cap: Money
    held: Money
    spent: Money
    available: Money
    since: float
    until: float | None
    now: float
    client: str | None = Field(None, description="Whose budget, where it is not everybody's.")


class Receipt(BaseModel):
    """A decision with all that it followed from: estimates, neighbours, the price, and what would have changed it."""

    model_config = ConfigDict(extra="allow")

    id: str
    at: float
    client: str | None
    classifier: str
    reason: str


class Decisions(Given):
    """Receipts in short, newest first."""

    decisions: list[Receipt]
    next: str | None = Field(description="Give it as before to go on; null at the end.")


class Row(Strict):
    """A labelled query: what each classifier did on it."""

    id: Name | None = Field(None, description="By default a hash of the features; one that is known is replaced.")
    features: Numbers | dict[str, Numbers]
    success: dict[str, Share]
    label: str | Whole | None = None
    group: str | Whole | None = None


class AddRowsRequest(Strict):
    """Labelled rows to add."""

    rows: list[Row] = Field(min_length=1, fail_fast=True)


class AddClassifierRequest(Strict):
    """A classifier to add: what a call costs, and how it did on every labelled row, in their order or by their ids."""

    name: Name
    cost: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e9)]
    success: Annotated[list[Share], FIRST] | dict[str, Share]


class Changed(Given):
    """What is decided by from now on."""

    snapshot: str
    rows: int
    classifiers: list[str]


class AlarmRaised(Given):
    """A change that chance does not explain."""

    what: str
    since: int
    number: int
    evidence: float
    sentence: str


class Alarms(Given):
    """Whether queries and answers still are as the labelled rows were."""

    alarms: list[AlarmRaised]
    evidence: dict[str, float]


def amount(given: str | float) -> Decimal:
    """An amount exactly; a float means the shortest decimal that prints it, or nothing where nobody could count it."""
    return money_from_text("0" if isinstance(given, float) and given < TINY else str(given), "cost")


def written(given: Decimal) -> str:
    """An amount as requests may give it, too: never with an exponent, as Python writes small ones."""
    return f"{given:f}"


def feature_array(given: list[float] | Packed32 | Packed64 | None) -> npt.NDArray[np.floating[Any]] | None:
    """Features (d,) as an array."""
    if given is None:
        return None
    if isinstance(given, list):
        return numbers(given)
    return unpacked(given.float32, "float32") if isinstance(given, Packed32) else unpacked(given.float64, "float64")


def query_value(
    given: str | list[float] | Packed32 | Packed64 | PackedBytes,
) -> tuple[Literal["text", "numbers", "bytes"], Any]:
    """The form of a query, and the query as classifiers take it."""
    if isinstance(given, str):
        return "text", given
    if isinstance(given, PackedBytes):
        return "bytes", unpacked_bytes(given.base64)
    return "numbers", feature_array(given)
